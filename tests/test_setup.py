"""What the ranks find on a real Slurm: their environment, a container, and the code they were submitted with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import SLURMDDP, job_output
from polling import until

PROGRAMS = Path(__file__).parent / "programs"
ONE = "--ntasks-per-node=1"
"""A rank on each node, without GPUs; who says nothing gets all of a node."""


def said(name: str, attempt: str = "*") -> dict[int, dict]:
    """The last line of JSON of each rank, in its last attempt: a node may fail to start the first one."""
    files = [file for file in sorted(Path("jobs", name).glob(f"logs/*/{attempt}/*.out")) if file.stem.isdigit()]
    lines = {int(file.stem): [line for line in file.read_text().splitlines() if line[:1] in '{"['] for file in files}
    return {rank: json.loads(found[-1]) for rank, found in lines.items()}


REPORT = """
import json, os, sys
import slurmddp, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
names = ("TOKEN", "A", "NCCL_DEBUG", "PYTHONPATH", "RANK", "VIRTUAL_ENV", "PATH", "SEEN")
said = {"from": slurmddp.__file__, "sum": int(total), "cwd": os.getcwd(), "seen": os.path.exists("/opt/data/x")}
print(json.dumps(said | {name: os.environ.get(name) for name in names}))
"""

APPTAINER, PYXIS, NERSC = (PROGRAMS / f"{name}_standin" for name in ("apptainer", "pyxis", "nersc"))


@pytest.mark.parametrize(
    ("launcher", "image", "runtime", "stand_in"),
    [
        ("srun", "docker://torch", "", APPTAINER),
        pytest.param("torchrun", "torch.sif", "", APPTAINER, marks=pytest.mark.soak),
        ("fork", "nvcr.io#torch", "", PYXIS),
        pytest.param("srun", "nvcr.io#torch", "", PYXIS, marks=pytest.mark.soak),
        ("fork", "nersc/torch:2", "podman-hpc", NERSC),
        pytest.param("srun", "docker:nersc/torch:2", "shifter", NERSC, marks=pytest.mark.soak),
    ],
)
def test_the_ranks_run_in_a_container_and_see_what_they_need(cli, tmp_path, launcher, image, runtime, stand_in):
    """By stand-ins for the containers' programs that write down what they are told and make the mounts for real."""
    (tmp_path / "train.py").write_text(REPORT)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").touch()
    if image.endswith(".sif"):
        (tmp_path / image).touch()
    words = ["submit", "--nodes=2", "--gpus-per-node=1", f"--launcher={launcher}", "--wait", f"--container={image}"]
    words += [f"--container-mount={tmp_path}/data:/opt/data:ro", f"--python={sys.executable}", "--env=TOKEN"]
    words += [
        *(["--container-runtime", runtime] if runtime else []),
        "--env=A=b c",
        "--env=NCCL_DEBUG=WARN",
        "train.py",
    ]
    log = tmp_path / "standin.log"
    environ = {"TOKEN": "to ken", "PYTHONPATH": "/elsewhere", "STANDIN_LOG": str(log)}
    cli(*words, path=[stand_in], environ=environ)
    reports = said("train")
    assert sorted(reports) == [0, 1]
    for report in reports.values():
        assert report["from"] == "/opt/slurmddp/slurmddp/__init__.py"
        assert (report["sum"], report["cwd"], report["seen"]) == (3, str(tmp_path), True)
        assert (report["TOKEN"], report["A"], report["NCCL_DEBUG"]) == ("to ken", "b c", "WARN")
        assert report["PYTHONPATH"] == "/opt/slurmddp:/elsewhere"
    told = log.read_text()
    assert f"image {image}\n" in told
    assert f"{tmp_path}:{tmp_path}" in told or f" {tmp_path} {tmp_path}/jobs/train " in told
    assert "to ken" not in told and "b c" not in told
    assert (tmp_path / "jobs" / "train" / "events.jsonl").stat().st_size, "the run's folder is written to from inside"


def test_a_container_without_its_program_is_told_of_by_the_job(cli, tmp_path):
    for name in ("train.py", "x.sif", "x.sqsh"):
        (tmp_path / name).touch()
    cli("submit", "--wait", ONE, "--container=x.sif", "train.py", status=1)
    assert "neither apptainer nor singularity is on PATH" in job_output(Path())
    cli("submit", "--wait", ONE, "--name=pyxis", "--container=x.sqsh", "train.py", status=1)
    assert "pyxis is not installed" in job_output(Path())
    cli("submit", "--wait", ONE, "--name=shifter", "--container=t", "--container-runtime=shifter", "train.py", status=1)
    assert "shifter is not on PATH; load it by --module" in job_output(Path())


MODULES = """
module() {
  [ "$1 $2" = "load site/1" ] || { echo "Unable to locate a modulefile for '$2'" >&2; return 1; }
  export SEEN=site
}
"""


def test_the_ranks_find_modules_conda_and_lines_of_their_own(cli, tmp_path):
    """Row 30, with a stand-in for conda and a module function that the job has to load; a .bashrc may leave traps."""
    (tmp_path / "train.py").write_text(REPORT)
    for name in ("init", "envs/torch/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "init" / "bash").write_text(MODULES)
    (tmp_path / "envs" / "torch" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "rc.sh").write_text("trap : DEBUG\ntrap 'sleep 100' TERM\nfalse\ntrue\n")
    words = ["submit", ONE, "--wait", "--module=site/1", "--conda=torch"]
    (tmp_path / "own.sh").write_text("if true; then\n  export TOKEN=file\nfi\n")
    words += ["--setup-file=own.sh", "--setup=source rc.sh", "--setup=set -u", "--setup=export A=$SEEN-$TOKEN"]
    found = {"MODULESHOME": str(tmp_path), "CONDA_ENVS": str(tmp_path / "envs")}
    cli(*words, f"--python={sys.executable}", "train.py", path=[PROGRAMS / "conda_standin"], environ=found)
    report = said("train")[0]
    assert (report["sum"], report["SEEN"], report["A"]) == (1, "site", "site-file")
    assert f"{tmp_path}/envs/torch/bin" in report["PATH"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--module=gone"], "set-up failed with status 1: module load gone"),
        (["--conda=gone"], "set-up failed with status 1: conda activate gone"),
        (["--force", "--venv=gone"], "set-up failed with status 1: source gone/bin/activate"),
        (["--setup=true", "--setup=(exit 9)"], "set-up failed with status 9: (exit 9)"),
    ],
)
def test_a_set_up_that_fails_names_its_line(cli, tmp_path, words, told):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text(MODULES)
    path = [PROGRAMS / "conda_standin"]
    cli(
        "submit",
        "--wait",
        ONE,
        *words,
        "train.py",
        status=1,
        path=path,
        environ={"MODULESHOME": ".", "CONDA_ENVS": "/nowhere"},
    )
    assert told in job_output(Path())


@pytest.mark.parametrize("words", [[], [f"--venv={sys.prefix}"]])
def test_programs_that_ranks_start_find_the_ranks_environment(cli, slurm_env, tmp_path, words):
    """Though nothing is active where the job is submitted."""
    (tmp_path / "train.py").write_text("import subprocess, sys\nsubprocess.run(['python', 'sub.py'], check=True)\n")
    (tmp_path / "sub.py").write_text("import json, sys\nprint(json.dumps(sys.prefix))\n")
    without = [folder for folder in slurm_env["PATH"].split(":") if folder != f"{sys.prefix}/bin"]
    cli("submit", "--wait", ONE, *words, "train.py", environ={"PATH": ":".join(without)})
    assert said("train") == {0: sys.prefix}


@pytest.fixture
def without_slurmddp(tmp_path) -> Path:
    """A virtual environment that finds all packages of the tests but slurmddp."""
    folder, packages = tmp_path / "plain", tmp_path / "packages"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages.mkdir()
    (installed,) = [Path(path) for path in sys.path if path.endswith("site-packages")]
    for path in installed.iterdir():
        if "slurmddp" not in path.name:
            (packages / path.name).symlink_to(path)
    (next(folder.glob("lib/*/site-packages")) / "packages.pth").write_text(str(packages))
    lacks = subprocess.run(
        [folder / "bin/python", "-P", "-c", "import torch, slurmddp"], capture_output=True, check=False
    )
    assert b"No module named 'slurmddp'" in lacks.stderr
    return folder


FOREIGN = """
import json, multiprocessing, sys
import torch
import slurmddp
def where(_): return sys.prefix
if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    total = torch.tensor([1])
    torch.distributed.all_reduce(total)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(json.dumps([int(total), sys.prefix, *pool.map(where, [0]), sys.argv[1:]]))
"""


@pytest.mark.parametrize("launcher", ["srun", "fork", "torchrun"])
def test_the_ranks_python_need_not_have_slurmddp(cli, slurm_env, tmp_path, without_slurmddp, launcher):
    """Its package comes from where `slurmddp` is installed; so does the supervisor."""
    (tmp_path / "train.py").write_text(FOREIGN)
    given = {
        "srun": [f"--setup=export SLURM_TMPDIR={tmp_path}", "--venv=$SLURM_TMPDIR/plain"],
        "fork": [f"--setup=export PATH={without_slurmddp}/bin:$PATH"],
    }
    active = {"VIRTUAL_ENV": str(without_slurmddp), "PATH": f"{without_slurmddp}/bin:{slurm_env['PATH']}"}
    words = ["submit", "--wait", "--nodes=2", "--ntasks-per-node=2", f"--launcher={launcher}"]
    cli(*words, *given.get(launcher, []), "train.py", "a b", environ={} if launcher in given else active)
    prefix = str(without_slurmddp)
    assert said("train") == {rank: [4, prefix, prefix, ["a b"]] for rank in range(4)}, job_output(tmp_path)


def test_lines_before_and_after_the_ranks_run_once_on_each_node(cli, tmp_path):
    """With what the set-up lines export; a failure after the ranks is told, and the lines behind it run."""
    rank = """
import os
scratch = open("scratch-" + os.environ["SLURMD_NODENAME"]).read()
print(scratch, os.environ["MINE"], file=open("rank-" + os.environ["RANK"], "w"))
"""
    (tmp_path / "train.py").write_text(rank)
    before = 'echo "$MINE" >>"scratch-$SLURMD_NODENAME"'
    after = ["ls gone", 'mv "scratch-$SLURMD_NODENAME" "$MINE-$SLURMD_NODENAME-$SLURMDDP_STATUS"']
    words = ["--setup=MINE=mine", f"--before-ranks={before}", *(f"--after-ranks={line}" for line in after)]
    cli("submit", "--wait", "--nodes=2", "--ntasks-per-node=2", *words, "train.py")
    assert {path.name: path.read_text() for path in tmp_path.glob("mine-*")} == {
        f"mine-n{n}-0": "mine\n" for n in (1, 2)
    }
    assert [path.read_text().split() for path in tmp_path.glob("rank-*")] == [["mine", "mine"]] * 4
    for number in (1, 2):
        assert f"slurmddp: --after-ranks ended with status 2 on n{number}: ls gone" in job_output(tmp_path)


@pytest.mark.parametrize(
    ("line", "told"),
    [("exit 3", "status 3 on n1: exit 3"), ("ls gone; true", "status 2 on n1: ls gone")],
)
def test_a_line_before_the_ranks_that_fails_ends_the_job_with_its_reason(cli, tmp_path, line, told):
    (tmp_path / "train.py").write_text("open('started', 'w')")
    done = cli("submit", "--wait", ONE, "--nodelist=n1", f"--before-ranks={line}", "train.py", status=1)
    assert f"--before-ranks ended with {told}" in done.stderr
    assert "attempt 0.0, ended with status 77" in job_output(tmp_path) and "attempt 0.1" not in job_output(tmp_path)
    assert not (tmp_path / "started").exists()


CODE = """
import json, os, sys, time
import helper
said = {"train": "one", "helper": helper.SAYS, "cwd": os.getcwd(), "data": open("data.txt").read()}
print(json.dumps(said), flush=True)
time.sleep(0 if os.environ.get("SLURM_RESTART_COUNT") else 300)
"""


def test_a_queued_job_and_a_requeued_one_run_the_code_they_were_submitted_with(cli, slurm, wait_for_job, tmp_path):
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "helper.py").write_text("SAYS = 'one'\n")
    (tmp_path / "data.txt").write_text("then")
    words = [ONE, "--snapshot", "train.py"]
    rendered = cli("render", *words).stdout
    job = cli("submit", "--hold", *words).stdout.strip()
    assert slurm("scontrol", "write", "batch_script", job, "-").replace("#SBATCH --hold\n", "") == rendered
    record = json.loads(Path("jobs/train/submissions.jsonl").read_text())
    assert [path.name for path in Path("jobs/train/code").iterdir()] == [record["code"]]
    (tmp_path / "helper.py").unlink()
    (tmp_path / "train.py").write_text("raise SystemExit('two')\n")
    (tmp_path / "data.txt").write_text("now")
    slurm("scontrol", "release", job)
    until(lambda: "one" in job_output(Path()), otherwise=lambda: job_output(Path()))
    cli("requeue", job)
    assert wait_for_job(job)["JobState"] == "COMPLETED", job_output(Path())
    for attempt in ("0.0", "1.0"):
        wanted = {"train": "one", "helper": "one", "cwd": str(tmp_path), "data": "now"}
        assert said("train", attempt) == {0: wanted}
    again = cli("submit", "--hold", *words)
    assert "continues with the code as it is now" in again.stderr and f"job {job} has {record['code']}" in again.stderr
    assert len(list(Path("jobs/train/code").iterdir())) == 2
    slurm("scancel", again.stdout.strip())


def test_a_refused_job_leaves_no_copy(cli, tmp_path):
    (tmp_path / "train.py").write_text("")
    cli("submit", "--force", "--snapshot", "--partition=nowhere", "train.py", status=3)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.fixture
def unresolved_head(slurm, tmp_path):
    """Make the name n1 unknown on n2, by another hosts file over that node's own, until the test has ended."""
    hosts = slurm("srun", "--nodelist=n2", "cat", "/etc/hosts").splitlines(keepends=True)
    (tmp_path / "hosts").write_text("".join(line for line in hosts if "n1" not in line.split()))
    slurm("srun", "--nodelist=n2", "mount", "--bind", f"{tmp_path}/hosts", "/etc/hosts")
    yield
    slurm("srun", "--nodelist=n2", "umount", "/etc/hosts")


@pytest.mark.usefixtures("unresolved_head")
@pytest.mark.parametrize("launcher", ["srun", pytest.param("torchrun", marks=pytest.mark.soak)])
def test_a_head_whose_name_is_unknown_to_the_others_is_reached_by_its_address(cli, tmp_path, launcher):
    (tmp_path / "train.py").write_text(
        "import socket\ntry:\n    socket.gethostbyname('n1')\nexcept OSError:\n    print('unknown')\n" + REPORT
    )
    cli("submit", "--nodes=2", ONE, "--nodelist=n[1-2]", f"--launcher={launcher}", "--wait", "train.py")
    assert {rank: report["sum"] for rank, report in said("train").items()} == {0: 3, 1: 3}
    (log,) = Path("jobs/train").glob("logs/*/0.0/1.out")
    assert "unknown" in log.read_text()


WRAPPER = """#!/bin/sh
[ "$1" = 'x y.%q{SLURM_PROCID}.$NO' ] || exit 9
shift
export WRAPPED=$((WRAPPED + 1))
"$@"
"""
"""As a profiler: it starts the rank's Python as its child, which Slurm's signals reach, too."""


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_words_of_wrap_stand_before_each_ranks_python_as_they_are(cli, tmp_path, launcher):
    (tmp_path / "train.py").write_text(REPORT.replace('"TOKEN",', '"TOKEN", "WRAPPED",'))
    (tmp_path / "wrapper").write_text(WRAPPER)
    (tmp_path / "wrapper").chmod(0o700)
    words = ["--nodes=2", "--ntasks-per-node=2", f"--launcher={launcher}"]
    cli("submit", *words, "--wrap=./wrapper 'x y.%q{SLURM_PROCID}.$NO'", "--wait", "train.py")
    assert [(report["sum"], report["WRAPPED"]) for report in said("train").values()] == [(10, "1")] * 4


@pytest.fixture
def other_names(slurm, tmp_path):
    """Give each node a second name, n1i and n2i, as those of a second network, until the test has ended."""
    for node in ("n1", "n2"):
        hosts = slurm("srun", f"--nodelist={node}", "cat", "/etc/hosts").splitlines()
        lines = [line + "".join(f" {name}i" for name in line.split() if name in ("n1", "n2")) for line in hosts]
        (tmp_path / f"hosts-{node}").write_text("\n".join(lines) + "\n")
        slurm("srun", f"--nodelist={node}", "mount", "--bind", f"{tmp_path}/hosts-{node}", "/etc/hosts")
    yield
    for node in ("n1", "n2"):
        slurm("srun", f"--nodelist={node}", "umount", "/etc/hosts")


@pytest.mark.usefixtures("other_names")
@pytest.mark.parametrize("launcher", ["srun", "fork", "torchrun"])
def test_the_head_has_its_other_name_everywhere(cli, tmp_path, launcher):
    text = REPORT.replace('"TOKEN",', '"TOKEN", "MASTER_ADDR",')
    (tmp_path / "train.py").write_text(text)
    words = ["--nodes=2", ONE, "--nodelist=n[1-2]", f"--launcher={launcher}", "--head-address={host}i"]
    cli("submit", *words, "--before-ranks=echo before: $MASTER_ADDR", "--wait", "train.py")
    reports = said("train")
    assert [(report["sum"], report["MASTER_ADDR"]) for report in reports.values()] == [(3, "n1i")] * 2
    assert job_output(tmp_path).count("before: n1i") == 2


LEAKING = {
    "SLURM_JOB_ID": "1", "SLURM_NTASKS": "7", "SLURM_CPU_BIND": "x", "SLURM_MEM_PER_CPU": "1", "RANK": "3",
    "SLURM_MEM_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "9", "SLURM_TRES_PER_TASK": "cpu:9", "SBATCH_EXPORT": "NONE",
    "SBATCH_NO_REQUEUE": "1", "SLURM_HINT": "nomultithread", "SLURM_DISTRIBUTION": "cyclic", "WORLD_SIZE": "9",
    "LOCAL_RANK": "1", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1", "PMI_RANK": "1", "OMPI_COMM_WORLD_RANK": "1",
    "SLURMDDP_CODE": "/nowhere", "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip


def test_a_submission_with_leaking_variables_or_from_inside_a_job_is_the_same(cli, slurm, slurm_env, tmp_path):
    (tmp_path / "train.py").write_text("")
    words = ["submit", "--hold", "--nodes=2", "--ntasks-per-node=2", "-v", "--name"]
    jobs = []
    for name, environ in (("one", {}), ("two", LEAKING)):
        done = cli(*words, name, "train.py", environ=environ)
        jobs.append(done.stdout.strip())
        assert "left out of sbatch's environment: " + (" ".join(sorted(environ)) or "nothing") in done.stderr
    step = ["srun", "--nodes=1", "--ntasks=1", "--cpus-per-task=3", "--mem=100", SLURMDDP, *words, "three", "train.py"]
    done = subprocess.run(step, env=slurm_env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert " SLURM_STEP_ID " in done.stderr
    jobs.append(done.stdout.strip())
    varying = (
        "JobId",
        "JobName",
        "Time",
        "Priority",
        "StdOut",
        "StdErr",
        "Sched",
        "AllocNode",
        "SubmitLine",
        "--output",
    )
    shown = [slurm("scontrol", "show", "job", job).split() for job in jobs]
    slurm("scancel", *jobs)
    first, *others = ([word for word in words if not any(part in word for part in varying)] for words in shown)
    assert others == [first, first]
