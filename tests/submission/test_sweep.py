"""Sweeps on a real Slurm: each setting a run of its own, that comes back by itself; and only what is missing."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from polling import until

from slurmddp.cli import group, run_command_line
from slurmddp.cli import sweep as command
from slurmddp.cluster.partitions import Cluster
from slurmddp.cluster.request import Request
from slurmddp.config.job_array import Array, Task
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.status import JobStatus
from slurmddp.outcome import Kind
from slurmddp.runs import registry
from slurmddp.runs.files import append_record, read_records
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.states import outcome_of
from slurmddp.submission import sweep as submission
from slurmddp.submission.sweep import SweepProgress, find_sweep, last_printed, ranked, results

SLURMDDP = Path(sys.executable).parent / "slurmddp"
COUNTS = """\
#!/bin/sh
# counts FILE LAST: goes on from the number in the file, and from 3 when there is a file named go
i=$(cat "$1" 2>/dev/null || echo 0)
while [ "$i" -lt "$2" ]; do
  i=$((i + 1)) && echo "$i" >"$1.part" && mv "$1.part" "$1"
  while [ "$i" -ge 3 ] && [ ! -e go ]; do sleep 0.2; done
done
"""
OVER = ("--set", "n=1..5", "--set", "last=30,40")


@pytest.fixture
def cli(slurm_env, tmp_path, monkeypatch):
    """Run slurmddp in an empty folder, pointed at the sandbox."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counts").write_text(COUNTS)
    (tmp_path / "counts").chmod(0o755)

    def run(*words, status=0):
        done = subprocess.run(
            [SLURMDDP, *words], env=slurm_env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def sweep(*words):
    job = ["--ntasks-per-node=1", "-c1", "--no-python", "--name=s", "--partition=low"]
    return ["sweep", *job, *words, "./counts", "at-{n}-{last}", "{last}"]


def at(path: Path) -> int:
    return int(path.read_text()) if path.exists() else 0


def pids_of(*words: str) -> list[int]:
    """The processes of which the last words are these."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if tuple(line[-len(words) :]) == words and "counts" in line[-len(words) - 1]:
            found.append(int(path.parent.name))
    return found


def test_each_setting_is_done_whatever_happens_to_its_job(cli, sandbox, slurm, tmp_path):
    job = cli(*sweep(*OVER, "--max-parallel=8", "--snapshot")).stdout.strip()
    until(lambda: at(tmp_path / "at-2-30") == at(tmp_path / "at-1-40") == 3)
    for pid in pids_of("at-2-30", "30"):
        with suppress(ProcessLookupError):  # the one that waited for it may have gone with it
            os.kill(pid, signal.SIGKILL)
    until(lambda: any(event["event"] == "restart" for event in events(tmp_path, "n=2,last=30")))
    sandbox.preempt(f"{job}_1")
    (tmp_path / "go").touch()
    until(lambda: not slurm("squeue", "--noheader", f"--jobs={job}").strip())
    for n in range(1, 6):
        for last in (30, 40):
            assert at(tmp_path / f"at-{n}-{last}") == last
    assert any(event["event"] == "requeue" for event in events(tmp_path, "n=1,last=40"))
    told = {item["name"]: item for item in json.loads(cli("status", "s", "--json").stdout)["jobs"]}
    assert {item["state"] for item in told.values()} == {"COMPLETED"} and len(told) == 10
    assert told["n=1,last=40"]["job_id"] == f"{job}_1" and len(told["n=1,last=40"]["progress"]["requeues"]) == 1
    assert f"{job}_*" in cli("status").stdout and "10 tasks" in cli("status").stdout
    assert "ended with status 0" in cli("logs", "s/n=1,last=40").stdout
    assert not list((tmp_path / "jobs" / "s" / "logs").iterdir()), "every task writes into its own run"
    (copy,) = (tmp_path / "jobs" / "s" / "code").iterdir()
    assert (copy / "counts").read_text() == COUNTS
    again = cli(*sweep(*OVER))
    assert (again.stdout, again.stderr.splitlines()[0]) == ("", "10 settings: 0 submitted, 10 done before")
    added = cli(*sweep("--set", "n=6..1", "--set", "last=30,40", "--hold", "--nodes=2"))
    more = added.stdout.strip()
    assert added.stderr.endswith("; its results, once there are some: slurmddp sweep results s\n")
    states = [line.split()[2] for line in cli("sweep", "results", "s").stdout.splitlines()]
    assert states == ["state", *["done"] * 10, *["pending"] * 2]
    tried = cli(*sweep("--set", "n=1..7", "--set", "last=30,40", "--dry-run")).stderr
    assert "14 settings: 2 would be submitted, 10 done before, 2 queued\n" in tried
    third = json.loads(cli(*sweep("--set", "n=1..6", "--set", "last=30,40", "--json")).stdout)
    slurm("scancel", more)
    assert (third["jobs"], len(third["done"]), third["queued"]) == (
        [],
        10,
        [{"n": "6", "last": "30"}, {"n": "6", "last": "40"}],
    )
    assert cli("sweep", "results", "s").stdout.count(" cancelled  ") == 2


def events(folder: Path, setting: str) -> list[dict]:
    return list(read_records(RunDir(folder / "jobs" / "s" / setting).events))


def test_the_script_is_the_one_that_render_prints_and_slurm_holds(cli, slurm, tmp_path):
    words = sweep("--set", "n=1..3", "--set", "last='a b',$(id)", "--hold")
    shown = cli("render", *words[1:]).stdout
    job = cli(*words).stdout.strip()
    held = slurm("scontrol", "write", "batch_script", job, "-")
    slurm("scancel", job)
    assert held == shown == (tmp_path / "jobs" / "s" / f"{job}.sbatch").read_text()
    assert "#SBATCH --array=0-5\n" in shown and r'"at-1-\$(id)" "\$(id)"' in shown


def test_the_same_sweep_typed_twice_at_once_is_submitted_once(cli, slurm, slurm_env, monkeypatch):
    """The second comes while the first has looked at what is missing, and has submitted nothing yet."""
    words, refused = sweep("--set", "n=1,2", "--set", "last=1", "--hold"), []
    look = submission.read_progress

    def read_progress(*asked):
        found = look(*asked)
        refused.append(cli(*words, status=2).stderr)
        return found

    monkeypatch.setattr(submission, "read_progress", read_progress)
    for name, value in slurm_env.items():
        monkeypatch.setenv(name, value)
    group.main(words, standalone_mode=False)
    waiting = slurm("squeue", "--array", "--noheader", "--name=s", "--states=PENDING", "--format=%i").split()
    slurm("scancel", *waiting)
    assert len(waiting) == 2 and "run s is being submitted by process" in refused[0]


def test_what_is_more_than_one_array_may_have_are_several_without_a_common_limit(tmp_path, monkeypatch):
    spec = JobSpec(job_name="x", command=("t.py",), runs_dir=str(tmp_path))
    tasks = tuple(Task({"n": str(number)}, spec) for number in range(3))
    several = Request(Resolved(spec, {}), Cluster(max_array_size=2))
    told = {"change": False, "force": False, "environ": {}, "notice": print, "accepted": print}
    sizes = []

    def submit(request, **_):
        if sizes:
            raise ClusterError("refused")
        sizes.append(len(request.array.tasks))

    monkeypatch.setattr(submission, "submit", submit)
    with pytest.raises(ClusterError, match="2 of 3 settings are queued, then: refused"):
        submission.sweep(several, Array(tasks), **told)
    with pytest.raises(ClusterError, match="3 settings need 2 here"):
        submission.sweep(several, Array(tasks, max_parallel=2), **told)
    assert sizes == [2]


def test_the_settings_are_counted():
    task = Task({"x": "1"}, JobSpec(job_name="x", command=("t.py",)))
    missing = SweepProgress(done=(), queued=(), missing=(task,))
    assert command._count_settings(missing, dry_run=False) == "1 setting: 1 submitted"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to sweep over"),
        (("--set", "lr=1"), "COMMAND has no {lr}"),
        (("--set", "n=1", "--launcher=manual"), "--launcher manual cannot run a sweep"),
        (("--set", "n=1,2", "--set", "last=1", "--zip"), "n has 2, last has 1"),
        (("--set", "n=1", "--set", "last=1", "./missing-{n}"), "'./missing-1' is not an executable file"),
    ],
)
def test_what_cannot_be_swept_over_is_one_line(cli, tmp_path, words, message):
    refused = cli(*sweep(*words), status=2)
    assert message in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert refused.stdout == "" and not (tmp_path / "jobs").exists()


def test_a_sweep_and_a_job_do_not_share_a_folder(cli, slurm, tmp_path):
    job = cli(*sweep(*OVER, "--hold")).stdout.strip()
    refused = cli("submit", "--ntasks-per-node=1", "--name=s", "--no-python", "./counts", "x", "1", status=2)
    slurm("scancel", job)
    assert "run s is a sweep" in refused.stderr
    append_record(RunDir(tmp_path / "jobs" / "s").submissions, {"job": "1", "sha256": "0"})
    assert "run s is a single job" in cli(*sweep("--set", "n=9", "--set", "last=1"), status=2).stderr


@pytest.fixture
def finished(tmp_path):
    """Return the folder of a sweep of four settings: one better than the other, one not a number, one not started."""
    run = RunDir(tmp_path / "jobs" / "s")
    run.create()
    append_record(run.submissions, {"job": "7", "settings": [{"lr": value} for value in ("1", "2", "3", "=4")]})
    for value, loss in (("1", 0.5), ("2", 0.25), ("3", "nan")):
        task = RunDir(run.path / f"lr={value}")
        task.create()
        head = {"job": f"7_{int(value) - 1}", "attempt": "0.0", "rank": 0, "host": "n1"}
        values = {"loss": loss, "accuracy": 1 - float(value) / 10, "lr": 0.1}
        append_record(task.events, {"time": 1.0, "event": "metrics", **head, "step": 8, "total": 9, "values": values})
        for kind in ("end", "attempt_end", "job_end"):
            append_record(task.events, {"time": 2.0, "event": kind, **head, "status": 0, "reason": "done"})
    return run


def test_results_have_the_best_first(finished, monkeypatch):
    monkeypatch.chdir(finished.path.parent.parent)
    found = results(finished, {})
    assert [result.values["lr"] for result in ranked(found, "loss", highest=False)] == ["2", "1", "3", "=4"]
    assert [result.values["lr"] for result in ranked(found, "accuracy", highest=True)] == ["1", "2", "3", "=4"]
    assert [result.outcome.kind for result in found] == [Kind.DONE, Kind.DONE, Kind.DONE, Kind.UNKNOWN]
    with pytest.raises(UsageError, match="unknown metric 'los'; did you mean loss?"):
        ranked(found, "los", highest=False)
    for name, record in (("t", {}), ("u", {"job": "7", "settings": ["lr"]})):
        run = RunDir(finished.path.parent / name)
        run.create()
        append_record(run.submissions, record)
        with pytest.raises(UsageError, match=f"'{name}' is not a sweep; there is s"):
            find_sweep(name, "jobs")
    with pytest.raises(UsageError, match="^'' is not a sweep; there is s"):
        find_sweep("", "jobs")
    assert find_sweep(None, "jobs").path.name == "s"
    monkeypatch.setattr(registry, "known_folders", lambda: [finished.path.parent])
    assert find_sweep("s", "elsewhere").path == finished.path  # as `status` and `logs` find it
    with pytest.raises(UsageError, match="there is no sweep in elsewhere; `slurmddp status --runs-dir .*` shows"):
        find_sweep(None, "elsewhere")


def test_a_setting_that_cannot_succeed_is_said_to_have_failed(finished, cli):
    head = {"job": "7_2", "attempt": "0.0", "rank": 0, "host": "n1"}
    append_record(
        RunDir(finished.path / "lr=3").events, {"time": 3.0, "event": "job_end", **head, "status": 77, "reason": "x"}
    )
    assert [result.outcome.kind for result in results(finished, {})][2:] == [Kind.FAILED, Kind.UNKNOWN]
    assert "failed" in cli("sweep", "results", "s").stdout


@pytest.mark.usefixtures("finished")
def test_results_as_a_table_and_for_programs(cli):
    table = cli("sweep", "results", "s").stdout.splitlines()
    assert table[0].split() == ["lr", "loss", "accuracy", "step", "state", "run"]
    assert table[1].split() == ["2", "0.25", "0.8", "8/9", "done", "s/lr=2"]
    assert table[4].split()[:3] == ["=4", "not", "started"] and table[4].split()[3].startswith("s/lr=")
    newest = cli("sweep", "results")
    assert (newest.stdout.splitlines(), newest.stderr) == (table, "these are of s\n")
    best = json.loads(cli("sweep", "results", "s", "--json").stdout)["results"][0]
    assert (best["settings"]["lr"], best["metrics"]["loss"], best["metrics"]["lr"]) == ("2", 0.25, 0.1)
    assert json.loads(cli("sweep", "results", "s", "--json").stdout)["results"][2]["metrics"]["loss"] == "nan"


@pytest.fixture
def printed(tmp_path):
    """Return a sweep that logs no metric: one failed after a restart, one done, one submitted again, one waiting."""
    run = RunDir(tmp_path / "jobs" / "p")
    run.create()
    several = [{"lr": value} for value in "1234"]
    append_record(run.submissions, {"job": "7", "settings": several})
    append_record(run.submissions, {"job": "8", "settings": several[2:3]})
    texts = (
        ("1", "0.0", "stopped\n"),
        ("1", "0.1", "x" * 90 + "\n"),
        ("2", "0.0", "1%\r\x1b[1mloss\t0.5\x1b[0m\n\n \n"),
    )
    for value, attempt, text in (*texts, ("3", "0.0", "loss 0.25")):
        path = RunDir(run.path / f"lr={value}").rank_log(f"7_{int(value) - 1}", attempt, 0)
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for value, status in (("1", 77), ("2", 0)):
        end = {"time": 2.0, "event": "job_end", "job": f"7_{int(value) - 1}", "attempt": "0.1", "rank": 0, "host": "n1"}
        append_record(RunDir(run.path / f"lr={value}").events, {**end, "status": status, "reason": "x"})
    return run


@pytest.mark.usefixtures("printed")
def test_without_a_metric_results_have_the_last_line_of_each_setting_in_their_order(cli):
    shown = cli("sweep", "results", "p")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["lr", "state", "run", "last", "line", "of", "rank", "0"],
        ["1", "failed", "p/lr=1", "x" * 90],
        ["2", "done", "p/lr=2", "loss", "0.5"],
        ["3", "not", "started", "p/lr=3", "loss", "0.25"],
        ["4", "not", "started", "p/lr=4"],
    ]
    assert shown.stderr == (
        "no setting has logged a metric; to be ranked, a script calls `run.log(loss=...)`, as that of "
        "`slurmddp init --example steps`\n"
    )
    found = json.loads(cli("sweep", "results", "p", "--json").stdout)["results"]
    assert [one["last_line"] for one in found] == ["x" * 90, "loss 0.5", "loss 0.25", None]


def test_of_a_sweep_that_has_just_begun_no_script_is_blamed(cli, printed):
    for value in "12":
        RunDir(printed.path / f"lr={value}").events.unlink()
    assert cli("sweep", "results", "p").stderr == "no setting has logged a metric; none has ended\n"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_on_a_terminal_the_last_line_is_shortened_first(printed, monkeypatch, width):
    monkeypatch.setattr("slurmddp.submission.sweep.query_jobs", lambda *_: [])
    table = command._format_results(results(printed, {}), "loss", last_printed(printed), width)
    assert table[1].split()[1:3] == ["failed", "p/lr=1"] and table[1].endswith("x..." if width < 120 else "x")
    assert max(map(len, table)) <= width and table[2].split()[1:] == ["done", "p/lr=2", "loss", "0.5"]


def test_of_a_sweep_that_waits_no_metric_is_missed(printed, monkeypatch, capsys):
    monkeypatch.chdir(printed.path.parent.parent)
    waits = [
        JobStatus(
            job_id=f"7_{task}", run=RunDir(printed.path / f"lr={task + 1}"), name="", outcome=outcome_of("PENDING")
        )
        for task in range(4)
    ]
    for setting in printed.path.glob("lr=*"):
        (setting / "events.jsonl").unlink(missing_ok=True)
    monkeypatch.setattr("slurmddp.submission.sweep.query_jobs", lambda *_: waits)
    assert run_command_line(["sweep", "results", "p"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "no setting has started; to see why, type: slurmddp status p\n"
    assert [line.split()[1:3] for line in shown.out.splitlines()[1:]][3] == ["pending", "p/lr=4"]
