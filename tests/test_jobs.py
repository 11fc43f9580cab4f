"""Whole jobs on a real Slurm: what is submitted is what runs, and what runs is what was asked for."""

import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from command_line import SLURMDDP, job_output
from polling import until

from slurmddp.runs.files import read_records

REPOSITORY = Path(__file__).parent.parent
RECIPES = sorted((REPOSITORY / "jobs").glob("*.toml"))
ONE = "--ntasks-per-node=1"
"""A rank on each node, without GPUs; who says nothing gets all of a node."""
TWO, ONE_NODE = ("--nodes=2", ONE), ("--nodes=1", "--ntasks-per-node=2")
"""Two ranks."""
FASHION = Path("/usr/share/datasets/fashion-mnist")

pytestmark = pytest.mark.long


def ranks(run: Path) -> dict[int, str]:
    """What each rank of the run's only attempt printed, by its number."""
    return {int(file.stem): file.read_text() for file in run.glob("logs/*/0.0/*.out") if file.stem.isdigit()}


REPORT = """
import json, os, socket, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(rank)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "CUDA_VISIBLE_DEVICES", "SEEN", "TOKEN")
print(json.dumps({"host": socket.gethostname(), "sum": int(rank), **{name: os.environ.get(name) for name in names}}))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("launcher", "width"), [("srun", 2), ("fork", 8)])
def test_a_torchrun_script_forms_its_group_unchanged(cli, tmp_path, launcher, width):
    """On two nodes: an all-reduce, set-up and variables seen by every rank."""
    (tmp_path / "train.py").write_text(REPORT)
    words = ["submit", "--nodes=2", f"--gpus-per-node={width}", "--launcher", launcher, "--wait"]
    cli(*words, "--setup", "export SEEN='it is'", "--env", "TOKEN", "train.py", environ={"TOKEN": "to ken"})
    reports = {rank: json.loads(text.splitlines()[-1]) for rank, text in ranks(tmp_path / "jobs" / "train").items()}
    assert sorted(reports) == list(range(2 * width))
    for rank, report in reports.items():
        node, local_rank = divmod(rank, width)
        place = (report["host"], report["RANK"], report["GROUP_RANK"], report["LOCAL_RANK"])
        assert place == (f"n{node + 1}", str(rank), str(node), str(local_rank))
        assert (report["WORLD_SIZE"], report["LOCAL_WORLD_SIZE"]) == (str(2 * width), str(width))
        assert report["sum"] == width * (2 * width + 1)
        assert report["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, range(width)))
        assert (report["SEEN"], report["TOKEN"]) == ("it is", "to ken")
    assert "to ken" not in (tmp_path / "jobs" / "train" / "job.sbatch").read_text()


@pytest.fixture(scope="module")
def every_way(sandbox, tmp_path_factory):
    """The same training of two ranks at once in every way to start it; each import of torch costs seconds."""
    folder = tmp_path_factory.mktemp("ways")
    environment = {**os.environ, **sandbox.environment(), "OMP_NUM_THREADS": "1"}
    training = ["--task=linear", "--epochs=1"]
    manual = ["--name=manual", "--nodes=2", "--launcher=manual", "--nodelist=n[1-2]", "--port-range=31000-31999"]
    command = [SLURMDDP, "render", *manual, *training]
    text = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    parts = [part.partition("\n") for part in text.split("# --- On ")[1:]]
    typed = [["srun", "-N1", "-n1", f"--nodelist={host}", "bash", "-c", part] for host, _, part in parts]
    ways = [["run", "--name=run", "--gpus-per-node=2"]]
    for launcher, shape in (("srun", TWO), ("fork", ONE_NODE), ("torchrun", ONE_NODE)):
        ways += [["submit", "--wait", f"--name={launcher}", f"--launcher={launcher}", *shape, "--cpus-per-task=1"]]
    started = [
        subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        for words in (*typed, *([SLURMDDP, *way, *training] for way in ways))
    ]
    assert [process.wait(500) for process in started] == [0] * 6, job_output(folder)
    return folder / "jobs"


@pytest.mark.parametrize("way", ["run", "manual", "fork", "torchrun"])
def test_every_way_to_start_ends_with_the_same_losses_and_bits(every_way, way):
    first, second = ([*read_records(every_way / name / "events.jsonl")] for name in (way, "srun"))
    ends = [[event["values"] for event in events if "epoch" in event.get("values", {})] for events in (first, second)]
    losses = [[values["loss"] for values in of_run] for of_run in ends]
    assert losses[0] == losses[1] != []
    assert sum(event["event"] == "start" for event in first) == 1
    models = [torch.load(every_way / name / "model.pt", weights_only=True) for name in (way, "srun")]
    assert list(models[0]) == list(models[1])
    assert not any(name.startswith("module.") for name in models[0])
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_a_notice_to_an_executable_that_does_not_hear_it_brings_the_job_back(cli, slurm, wait_for_job, tmp_path):
    """Slurm itself signals the executable, too; the job is put back into the queue, and cancelled there."""
    job = cli("submit", ONE, "--no-python", "--name=exe", "sh", "-c", "echo ready; sleep 300").stdout.strip()
    run = tmp_path / "jobs" / "exe"
    until(lambda: "ready" in str(ranks(run)), otherwise=lambda: job_output(tmp_path))
    slurm("scancel", "--signal=USR2", job)
    assert wait_for_job(job, "PENDING")["Restarts"] == "1", job_output(tmp_path)
    assert "back into the queue" in job_output(tmp_path)
    slurm("scancel", job)
    assert wait_for_job(job)["JobState"] == "CANCELLED"
    assert (run / "logs" / job / "0.0" / "0.end").read_text().startswith("75 rank 0 on n1: stop signal received (")


def test_what_render_prints_is_what_slurm_holds(cli, slurm, tmp_path):
    (tmp_path / "train.py").write_text("")
    words = ["--nodes=2", "--hold", "--name=held", "--sbatch", "comment=a 'b' \"c\" \\ #d $(e) é", "train.py", "é \n"]
    rendered = cli("render", *words).stdout
    job_id = cli("submit", *words).stdout.strip()
    assert slurm("scontrol", "write", "batch_script", job_id, "-") == rendered
    run = tmp_path / "jobs" / "held"
    assert (run / "job.sbatch").read_text() == (run / f"{job_id}.sbatch").read_text() == rendered
    record = json.loads((run / "submissions.jsonl").read_text())
    assert record["job"] == job_id
    assert record["sha256"] == hashlib.sha256(rendered.encode()).hexdigest()
    assert slurm("squeue", "-h", "-j", job_id, "-o", "%k") == "a 'b' \"c\" \\ #d $(e) é\n"
    slurm("scancel", job_id)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_sbatch_accepts_every_recipe(cli, recipe):
    """Whose launcher is of no concern to sbatch."""
    done = cli("submit", str(recipe), "--dry-run")
    assert done.stdout == cli("render", str(recipe)).stdout
    assert "to start at" in done.stderr


def test_the_script_works_when_handed_to_sbatch_by_hand(cli, slurm_env, tmp_path):
    (tmp_path / "train.py").write_text("print('trained')\n")
    script = cli("render", ONE, str(tmp_path / "train.py")).stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["sbatch", "--wait"], input=script.encode(), cwd=empty, env=slurm_env, check=True, timeout=300)
    assert ranks(empty / "jobs" / "train") == {0: "trained\n"}
    assert (empty / "jobs" / "train").stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_size for file in empty.glob("slurm-*.out")] == [0]


HOSTILE = [
    b"two words", b"$(touch injected)", b"`touch injected`", b"a'b\"c", b"back\\slash\\", b"*", b"~", b"line\nbreak",
    b"carriage\r\nreturn", b"", b"-n", b"--", b"$HOME", b"\xc3\xa9\xe6\xbc\xa2", b"\xff\xfe", b"\x01\x7f\x1b[2J",
    b"%t %j %%", b"#SBATCH --wrap=x", b"x" * 10000,
]  # fmt: skip


@pytest.mark.parametrize("launcher", ["srun", "fork"])
def test_a_hostile_command_reaches_the_script_byte_for_byte(cli, tmp_path, launcher):
    """Through click, Jinja, sbatch, bash, srun and the worker."""
    (tmp_path / "train.py").write_text("import os, sys\nprint([os.fsencode(word) for word in sys.argv[1:]])\n")
    cli("submit", ONE, "--launcher", launcher, "--wait", "train.py", *(os.fsdecode(word) for word in HOSTILE))
    assert ranks(tmp_path / "jobs" / "train")[0].splitlines()[-1] == repr(HOSTILE)
    assert not (tmp_path / "injected").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--partition", "nowhere"], "--partition: 'nowhere' does not exist; did you mean 'nograce'?"),
        (["--gpus-per-node", "9"], "--gpus-per-node 9: a node of partition gpu has 8"),
        (["--nodes", "3"], "--nodes 3: partition gpu has 2"),
        (["--cpus-per-task", "3"], "8 ranks need 24 CPUs on a node, and a job gets 16 in partition gpu; at most"),
        (["--mem", "17G"], "--mem 17G: a job gets 16000 MB on a node of partition gpu"),
        (["--partition", "short", "--time", "11"], "--time 11: partition short allows at most 00:10:00"),
        (["--nodelist", "n7"], "sbatch would refuse the job: allocation failure: Invalid node name specified"),
        (["--partition", 'x"; touch injected; "'], "does not exist"),
        (["--force", "--gpus-per-node", "9"], "sbatch refused the job: "),
        (["--force", "--partition", 'x"; touch injected; "'], "invalid partition"),
    ],
)
def test_what_the_cluster_refuses_is_one_line_and_leaves_nothing(cli, tmp_path, words, message):
    done = cli("submit", *words, status=3)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_expected_start_is_told(cli, slurm, wait_for_job, tmp_path):
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    first = cli("submit", "--name=first", "--nodes=2", "--time=10", "train.py")
    assert "Slurm expects it to start at once" in first.stderr
    wait_for_job(first.stdout.strip(), "RUNNING")
    second = cli("submit", "--name=second", "--nodes=2", "train.py")
    assert re.search(r"Slurm expects it to start at 20\d\d-\d\d-\d\d \d\d:\d\d", second.stderr)
    slurm("scancel", first.stdout.strip(), second.stdout.strip())


def test_a_failing_script_fails_the_job_and_the_wait(cli, tmp_path):
    (tmp_path / "bad.py").write_text("import os, sys\nsys.exit(3 if os.environ['RANK'] == '1' else 0)\n")
    done = cli("submit", *ONE_NODE, "--launcher=fork", "--follow", "--json", "bad.py", status=1)
    assert json.loads(done.stdout)["jobs"][0]["state"] == "FAILED"
    assert re.search("ended with status 77: rank 1 on n[12]: exit status 3; see ", done.stderr), done.stderr


def test_a_recorded_run_is_repeated_by_its_spec(cli, slurm, wait_for_job, tmp_path):
    (tmp_path / "train.py").write_text("")
    words = ["--hold", "--time", "5", "--env", "A=b c", "train.py", "a b", os.fsdecode(b"\xff")]
    job_id = cli("submit", *words).stdout.strip()
    slurm("scancel", job_id)
    wait_for_job(job_id)
    assert cli("render", "jobs/train/spec.toml").stdout == (tmp_path / "jobs/train/job.sbatch").read_text()


def test_ctrl_c_leaves_the_job_running(slurm_env, slurm, tmp_path):
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    command = [SLURMDDP, "submit", ONE, "--wait", "train.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=slurm_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        job_id = waiting.stdout.readline().strip()
        assert any(f"job {job_id} is" in line for line in waiting.stderr)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(timeout=300) == 130
        assert f"job {job_id} continues; to cancel it, type: slurmddp cancel {job_id}" in waiting.stderr.read()
    assert slurm("squeue", "-h", "-j", job_id, "-o", "%T").strip() in ("PENDING", "RUNNING")
    slurm("scancel", job_id)


LOSING_SBATCH = """#!/bin/bash
# The real sbatch; the first time the job is not accepted, and the answer is lost.
if [ "${{1:-}}" != --test-only ] && mkdir "{folder}/lost"; then
  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
  exit 1
fi
PATH="${{PATH#*:}}" exec sbatch "$@"
"""


def test_a_job_that_was_not_accepted_is_submitted_again(cli, slurm, slurm_env, tmp_path):
    """tests/submission has answers that are lost after the job was accepted."""
    (tmp_path / "train.py").write_text("")
    shim = tmp_path / "bin" / "sbatch"
    shim.parent.mkdir()
    shim.write_text(LOSING_SBATCH.format(folder=tmp_path))
    shim.chmod(0o755)
    name, environ = f"lost-{os.getpid()}", {"PATH": f"{shim.parent}:{slurm_env['PATH']}"}
    job_id = cli("submit", "--hold", "--name", name, "train.py", environ=environ).stdout.strip()
    assert (tmp_path / "lost").exists()
    assert slurm("squeue", "-h", "--states=all", "-n", name, "-o", "%i").split() == [job_id]
    slurm("scancel", job_id)


def test_inherited_variables_change_no_submission(cli, slurm, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os\nprint(os.environ.get('SLURM_CPU_BIND'), os.environ['MASTER_ADDR'])\n"
    )
    environ = {"SBATCH_PARTITION": "low", "SBATCH_EXPORT": "NONE", "SLURM_CPU_BIND": "none", "SLURM_MEM_PER_CPU": "1",
               "MASTER_ADDR": "elsewhere", "RANK": "5", "SLURM_NTASKS": "9", "SBATCH_OUTPUT": "/nowhere/x"}  # fmt: skip
    job_id = cli("submit", ONE, "--wait", "--env", "TOKEN=x", "train.py", environ=environ).stdout.strip()
    assert "Partition=low " in slurm("scontrol", "show", "job", job_id), "a site's default partition counts"
    assert ranks(tmp_path / "jobs" / "train")[0].splitlines()[-1].split()[-1] in ("n1", "n2")


def test_two_jobs_at_once_on_one_node_do_not_meet(cli, wait_for_job, tmp_path):
    (tmp_path / "train.py").write_text(REPORT)
    words = ["submit", *ONE_NODE, "--launcher=fork", "-w", "n1"]
    jobs = [cli(*words, "--name", name, "train.py").stdout.strip() for name in ("a", "b")]
    assert [wait_for_job(job)["JobState"] for job in jobs] == ["COMPLETED", "COMPLETED"], job_output(tmp_path)
    for name in ("a", "b"):
        assert all(json.loads(text.splitlines()[-1])["sum"] == 3 for text in ranks(tmp_path / "jobs" / name).values())


def shorten(data: Path, folder: Path, count: int) -> None:
    """Write the first pictures of a data set, and their classes, into the folder."""
    for path in data.glob("*-ubyte.gz"):
        raw = gzip.decompress(path.read_bytes())
        head, number = 4 + 4 * raw[3], int.from_bytes(raw[4:8])
        kept = raw[head : head + count * (len(raw) - head) // number]
        (folder / path.name).write_bytes(gzip.compress(raw[:4] + count.to_bytes(4) + raw[8:head] + kept, 1))


@pytest.mark.skipif(not FASHION.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_reaches_80_percent_in_one_epoch_of_four_ranks(cli, tmp_path):
    """Of the first 10,000 of its pictures."""
    data = tmp_path / "data"
    data.mkdir()
    shorten(FASHION, data, 10_000)
    words = ["submit", "--nodes=1", "--ntasks-per-node=4", "--launcher=fork", "--wait"]
    cli(*words, "--", "--data", str(data), "--epochs", "1", "--batch-size", "16")
    events = [json.loads(line) for line in (tmp_path / "jobs/mnist/events.jsonl").read_text().splitlines()]
    assert max(event["values"].get("accuracy", 0) for event in events if event["event"] == "metrics") >= 0.8


def test_a_record_of_an_earlier_job_of_the_same_number_is_not_believed(cli, slurm, wait_for_job, tmp_path):
    (tmp_path / "kill.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    job_id = cli("submit", ONE, "--hold", "kill.py").stdout.strip()
    stale = tmp_path / "jobs" / "kill" / "logs" / job_id / "0.0"
    stale.mkdir(parents=True)
    (stale / "0.end").write_text("0 done\n")
    slurm("scontrol", "release", job_id)
    assert wait_for_job(job_id)["JobState"] == "FAILED"
    assert [path.read_text() for path in stale.parent.glob("0.0.before-*/0.end")] == ["0 done\n"]


def test_ranks_that_were_never_launched_are_no_success(cli, tmp_path):
    """When it cannot open the ranks' output, the status of srun 22.05 is 0, and that of 24.11 is 1."""
    (tmp_path / "train.py").write_text("print('ran')\n")
    elsewhere = 'srun() { command srun "${@/#--output=*/--output=/proc/nowhere/%t.out}"; }'
    done = cli("submit", ONE, "--setup", elsewhere, "--max-restarts", "0", "--follow", "train.py", status=1)
    assert re.search("ended with status (76: no rank has begun|1: no rank left a record)", done.stderr)


def test_the_users_variables_reach_the_ranks_as_they_are(cli, tmp_path):
    names = ("hosts", "ranks", "limit", "try", "run_dir", "spread", "status")
    (tmp_path / "train.py").write_text(f"import os\nprint([os.environ[name] for name in {names}])\n")
    cli("submit", ONE, "--wait", "--env", "status=given", "train.py", environ=dict.fromkeys(names, "mine"))
    assert ranks(tmp_path / "jobs" / "train")[0].splitlines()[-1] == repr(["mine"] * 6 + ["given"])


STRICT = r"""set -euo pipefail -f -o noclobber
IFS=$'\n\t'
shopt -s nullglob failglob nocasematch
"""


def test_shell_options_of_a_set_up_line_do_not_spoil_the_end(cli, tmp_path):
    (tmp_path / "bad.py").write_text("raise ValueError('no')\n")
    (tmp_path / "strict.sh").write_text(STRICT)
    done = cli("submit", ONE, "--setup-file", "strict.sh", "--follow", "bad.py", status=1)
    assert "ended with status 77: " in done.stderr and "ValueError: no" in done.stderr
    (tmp_path / "good.py").write_text("")
    cli("submit", ONE, "--setup-file", "strict.sh", "--wait", "good.py")
    assert [path.name for path in (tmp_path / "jobs" / "good" / "logs").glob("*/*.*")] == ["0.0"]


def test_an_own_task_outside_the_package_trains_in_a_job(cli, tmp_path):
    """Its `prepare` runs once, where the job is submitted, and one that lacks its data leaves nothing behind."""
    (text,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "tasks.md").read_text(), re.DOTALL)
    looks = "    @classmethod\n    def prepare(cls, options):\n"
    looks += "        if options.data: raise UsageError('no hills there')\n"
    (tmp_path / "hills.py").write_text("from slurmddp.errors import UsageError\n" + text + looks)
    words = ["submit", *ONE_NODE, "--launcher=fork", "--wait", "--"]
    refused = cli(*words, "--task", "hills:Hills", "--data", "x", status=2)
    assert (refused.stdout, refused.stderr) == ("", "Error: no hills there\n")
    assert not (tmp_path / "jobs").exists()
    cli(*words, "--task", "hills:Hills", "--epochs", "2", "--optimizer", "adam", "--lr", "0.01")
    events = [json.loads(line) for line in (tmp_path / "jobs/Hills/events.jsonl").read_text().splitlines()]
    assert [event["values"]["epoch"] for event in events if "epoch" in event.get("values", {})][-1] == 2
    assert torch.load(tmp_path / "jobs/Hills/model.pt", weights_only=True)["0.weight"].shape == (64, 2)
