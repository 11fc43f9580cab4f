"""`slurmddp status`: table, details, JSON, exit status."""

import io
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click.testing
import pytest

from slurmddp.cli import group, job_control, status_format
from slurmddp.cli import status as command
from slurmddp.cli.screen import confirm
from slurmddp.cli.status_format import format_job, format_jobs
from slurmddp.errors import UsageError
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs import registry
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.client import NO_CLUSTER
from slurmddp.slurm.states import outcome_of
from slurmddp.submission.cancel import Cancelled

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
PROGRESS = Progress(
    attempt="1.0", step=50, total=200, loss=0.123456, samples_per_s=1234.5, left_s=3700.0, checkpoint_step=40,
    checkpoint_age_s=65.0, restarts=((1.0, "peer lost"),) * 7, requeues=((2.0, "preempted\x1b[2J"),),
)  # fmt: skip


def job(job_id="17", state="RUNNING", **fields):
    return JobStatus(**{"job_id": job_id, "run": None, "name": "mnist", "outcome": outcome_of(state), **fields})


RUNNING = job(
    submitted=NOON, started=NOON, elapsed_s=90, limit_s=7200, nodes=tuple(f"n{number}" for number in range(12)),
    partition="gpu", restarts=1, source="squeue", progress=PROGRESS, run=RunDir(Path("/w/jobs/mnist")),
)  # fmt: skip
WAITING = job(
    "18_[1-3]", "PENDING", reason="Priority", meaning="others come first; wait", expected_start=NOON, elapsed_s=0
)
FAILED = job(
    "19",
    name="x" * 70,
    meaning="rank 0 on n1: \x1b[31mValueError\n" + "y" * 100,
    outcome=Outcome(kind=Kind.FAILED, status=77, state="FAILED"),
)


def test_the_table_says_what_waits_and_how_old_a_state_is():
    lines = format_jobs([RUNNING, WAITING, job("20", "BLURRED", age_s=3700)])
    assert [line.split()[:3] for line in lines[:3]] == [
        ["RUN", "JOB", "STATE"], ["mnist", "17", "RUNNING"], ["mnist", "18_[1-3]", "PENDING"],
    ]  # fmt: skip
    assert "starts 2026-01-02" in lines[2] and "1h1m ago" in lines[3]
    assert all(line.isprintable() for line in format_jobs([RUNNING, FAILED]))


def overview(now):
    """Return a run on this machine, one that was requeued, one that hangs, and one that failed; at this time."""
    local = job(
        "local-20261128-020355-12345", name="digits", elapsed_s=26, total_s=26, source="files",
        progress=Progress(step=116, total=400, loss=0.00854, left_s=56.0),
    )  # fmt: skip
    again = job(
        "17", name="resnet50-imagenet-lr0.1-wd1e-4", elapsed_s=6000, total_s=36000, gpu_hours=160.0, limit_s=7200,
        started=now - timedelta(seconds=6000), progress=Progress(step=900, total=1000, loss=2.5, left_s=3600.0),
    )  # fmt: skip
    hangs = again._replace(job_id="18", name="gpt", progress=Progress(step=5, stall=(now.timestamp() - 600, "rank 3")))
    return [local, again, hangs, FAILED._replace(name="old", elapsed_s=2, total_s=7200)]


def test_a_row_has_no_path_and_no_second_time_that_is_but_another_clocks():
    said = "no record of rank 1; rank 0 on n1: lost; see /w/jobs/a/logs/17/0.0/0.out"
    one = FAILED._replace(name="a", meaning=said, elapsed_s=13, total_s=14)
    head, row = format_jobs([one])
    assert head.split() == ["RUN", "JOB", "STATE", "TIME", "WHAT"]
    assert row.endswith("  13s   no record of rank 1; rank 0 on n1: lost")
    assert "TOTAL" in next(iter(format_jobs([one._replace(total_s=18)])))


@pytest.fixture
def noon(monkeypatch):
    """It is noon."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return NOON.astimezone(tz)

    monkeypatch.setattr(status_format, "datetime", Noon)
    yield NOON
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_table_never_wraps(noon, width):
    lines = format_jobs(overview(noon), width=width)
    assert lines == Path(__file__).with_name(f"status-{width}.txt").read_text().splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [20, 40, 60, 79])
def test_no_width_is_too_narrow(noon, width):
    assert all(len(line) <= width for line in format_jobs(overview(noon), width=width))


def test_a_setting_has_the_name_that_is_typed():
    setting = job("17_0", name="lr=1", run=RunDir(Path("/w/jobs/s/lr=1")))
    assert next(format_job(setting)) == "s/lr=1: job 17_0 is RUNNING"
    assert list(format_jobs([setting]))[1].startswith("s/lr=1  17_0")


def test_many_tasks_in_the_same_state_are_one_row():
    times = {"elapsed_s": 5, "total_s": 5, "progress": PROGRESS}
    tasks = [job(f"17_{number}", **times) for number in range(9)] + [job("17_9", "FAILED")]
    lines = format_jobs(tasks)
    assert lines[1:] == ["mnist  17_*  RUNNING  9 tasks", "mnist  17_9  FAILED"], "no time or loss of one of them"
    ended = [job(f"17_{number}", "FAILED", meaning=f"ValueError: {number}") for number in range(9)]
    assert format_jobs(ended)[1].endswith("9 tasks; 17_0: ValueError: 0")


def test_what_is_not_running_well_is_seen_without_colours(monkeypatch):
    """A word and bold letters, which NO_COLOR leaves."""
    hangs = job(progress=Progress(stall=(0.0, "rank 3")), run=run_of("mnist"))
    for environ, codes in (({}, "\x1b[31m\x1b[1m"), ({"NO_COLOR": "1"}, "\x1b[1m")):
        with monkeypatch.context() as terminal:
            terminal.setattr("sys.stdout", io.StringIO())
            terminal.setattr("sys.stdout.isatty", lambda: True)
            for name, value in environ.items():
                terminal.setenv(name, value)
            command._print([hangs, FAILED], format_jobs([hangs, FAILED]))
            shown = sys.stdout.getvalue().splitlines()
        assert [line.partition("\x1b")[2] and codes + word + "\x1b[0m" in line for line, word in zip(
            shown[1:], ("HUNG", "FAILED"), strict=True
        )] == [True, True]  # fmt: skip


@pytest.mark.usefixtures("noon")
def test_a_single_job_is_shown_in_full_without_control_characters():
    text = "\n".join(format_job(RUNNING))
    assert all(len(line) <= 80 and line.isprintable() for line in text.splitlines())
    parts = """mnist: job 17 is RUNNING
1m30s, limit 2h
n7 and 4 more, partition gpu
attempt     1.0
1234 samples/s
step 40, 1m5s old
ends        13:01, limit at 14:00; 1h1m left at its pace
attempt     1.0, requeued once, restarted 7 times, the last
restarted: peer lost
requeued: preempted\\x1b
source      squeue"""
    for part in parts.splitlines():
        assert part in text
    assert "why         Priority; others come first; wait" in "\n".join(format_job(WAITING))
    assert "the run's files, 2m old" in "\n".join(format_job(job(age_s=120, run=RunDir(Path("/w/jobs/mnist")))))
    assert "source      Slurm" in "\n".join(format_job(job(state="UNKNOWN")))


@pytest.mark.parametrize(("pace", "words"), [(0.37, "0.37"), (12.25, "12.25"), (23456.7, "23457")])
def test_a_pace_is_shown_with_the_digits_that_matter(pace, words):
    assert f" {words} samples/s" in "\n".join(format_job(job(progress=PROGRESS._replace(samples_per_s=pace))))


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Return a function that lets Slurm return these statuses, and runs `slurmddp` as typed."""
    monkeypatch.chdir(tmp_path)
    for name, number in (("mnist", "17"), ("gpt", "19")):
        run = RunDir.named("jobs", name)
        run.create()
        run.submissions.write_text(json.dumps({"job": number, "time": number}) + "\n")

    def run(*words, statuses=(), input=None):  # noqa: A002 click's name
        def query(targets, _environ):
            return [
                [
                    item
                    for job in of.jobs
                    for item in statuses
                    if item.run == of.run and job in (item.job_id, item.ref.array_id)
                ]
                for of in targets
            ]

        monkeypatch.setattr(command, "query_targets", query)
        runner = click.testing.CliRunner()
        return runner.invoke(group, list(words), standalone_mode=False, input=input)

    return run


def run_of(name):
    return RunDir.named("jobs", name)


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (("RUNNING", "PENDING"), 0),
        (("COMPLETED", "RUNNING"), 0),
        (("FAILED", "RUNNING"), 1),
        (("CANCELLED", "COMPLETED"), 1),
        (("UNKNOWN", "COMPLETED"), 3),
        (("UNKNOWN", "FAILED"), 1),
    ],
)
def test_the_exit_status_of_named_jobs(typed, states, status):
    statuses = [job("17", states[0], run=run_of("mnist")), job("19", states[1], run=run_of("gpt"))]
    assert typed("status", "mnist", "19", statuses=statuses).return_value == status
    overview = typed("status", statuses=statuses)
    assert overview.return_value == 0 and overview.stdout.splitlines()[1].startswith("mnist")


def test_the_current_job_of_a_run_counts(typed):
    """An earlier failure is listed, but is not the state of the run."""
    statuses = [job("17", "FAILED", run=run_of("mnist")), job("18", "COMPLETED", run=run_of("mnist"))]
    run_of("mnist").submissions.write_text('{"job": "17"}\n{"job": "18"}\n')
    done = typed("status", "mnist", statuses=statuses)
    assert done.return_value == 0
    assert "mnist: job 18 is COMPLETED" in done.stdout and "17   FAILED" in done.stdout


def test_a_named_run_has_the_time_of_all_its_attempts_and_what_it_was_spent_on(typed):
    """Two nodes of eight GPUs: 10 s in the queue, 20 s until the first step, 40 s kept, 30 s lost; then 100 s more."""
    run, at = run_of("mnist"), datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    run.spec.write_text('gpus-per-node = "a100:8"\n')
    run.submissions.write_text(json.dumps({"job": "17", "time": datetime.fromtimestamp(at, UTC).isoformat()}) + "\n")
    story = [
        (10, "0.0", "attempt_start", {"nodes": "n[1-2]"}), (15, "0.0", "start", {"nodes": 2}),
        (30, "0.0", "loop", {"step": 0, "total": 100}), (70, "0.0", "checkpoint", {"step": 40}),
        (100, "0.0", "metrics", {"step": 70, "total": 100}), (100, "0.0", "restart", {"status": 76, "reason": "lost"}),
        (100, "0.1", "attempt_start", {"nodes": "n[1-2]"}), (101, "0.1", "start", {"nodes": 2}),
        (130, "0.1", "loop", {"step": 40, "total": 100}), (190, "0.1", "checkpoint", {"step": 100}),
        (190, "0.1", "end", {"status": 0, "reason": "done"}), (190, "0.1", "job_end", {"status": 0, "reason": "done"}),
    ]  # fmt: skip
    run.events.write_text(
        "".join(
            json.dumps(
                {"time": at + time, "event": kind, "job": "17", "attempt": attempt, "rank": 0, "host": "n1", **more}
            )
            + "\n"
            for time, attempt, kind, more in story
        )
    )
    statuses = [job("17", "COMPLETED", run=run)]
    shown = " ".join(typed("status", "mnist", statuses=statuses).stdout.split())
    assert "whole run 3m10s from its first submission on; 0.8 GPU-hours" in shown
    assert "spent on useful steps 1m40s, startup 50s, lost work 30s, in the queue 10s" in shown
    assert "ETTR 52.6% of all time, 55.6% of the allocated time; 30 steps taken again" in shown
    (record,) = json.loads(typed("status", "mnist", "--json", statuses=statuses).stdout)["jobs"]
    assert (record["whole_run"]["gpu_hours"], record["whole_run"]["ettr"]) == (0.8, 100 / 190)
    assert "whole run" not in typed("status", "gpt", statuses=[job("19", "FAILED", run=None)]).stdout


def test_json_has_every_field_and_nan_as_text(typed):
    bad = Progress(loss=float("nan"))
    done = typed("status", "17", "--json", statuses=[job(run=run_of("mnist"), submitted=NOON, progress=bad)])
    (record,) = json.loads(done.stdout)["jobs"]
    assert (record["job_id"], record["phase"], record["run"]) == ("17", "running", str(run_of("mnist").path))
    assert (record["submitted"], record["progress"]["loss"]) == (NOON.isoformat(), "nan")


def test_an_old_state_is_marked_as_old(typed):
    done = typed("status", "17", statuses=[job(run=run_of("mnist"), silence="no answer", age_s=60)])
    assert done.stderr == "the controller does not answer (no answer); the states come from files and may be old\n"
    away = typed("status", statuses=[job(run=run_of("mnist"), silence=f"squeue was not found; {NO_CLUSTER}")]).stderr
    assert away == "squeue was not found; log in to the cluster; the states come from files and may be old\n"
    assert typed("status", statuses=[job(state="UNKNOWN", run=run_of("mnist"), silence="no")]).return_value == 3


def test_a_job_that_is_named_twice_is_shown_once(typed):
    statuses = [job(f"17_{task}", run=run_of("mnist"), progress=PROGRESS) for task in (1, 2)]
    for words in (["17_1", "17_2"], ["17", "17"], ["mnist", "17_2"]):
        lines = typed("status", *words, statuses=[*statuses, *statuses]).stdout.splitlines()
        assert [line.split()[1] for line in lines] == ["JOB", "17_1", "17_2"], words
    lines = typed("status", "17_2", "19", statuses=statuses).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["JOB", "17_2"], "of tasks that are named no other is told"


def test_a_folder_without_runs_has_a_hint(typed):
    Path("nothing").mkdir()
    done = typed("status", "--runs-dir", "nothing")
    assert (done.return_value, done.stdout) == (0, "")
    assert done.stderr.startswith("there are no submitted runs in nothing; ")
    assert typed("status", "--runs-dir", "nothing", "--json").stdout == '{"schema": 1, "jobs": []}\n'
    registry.remember(Path.cwd() / "jobs")
    elsewhere = typed("status", "--runs-dir", "nothing").stderr
    assert elsewhere.endswith(f"; `slurmddp status --runs-dir {Path.cwd()}/jobs` shows those of another folder\n")


def test_the_newest_run_comes_first(typed):
    old = job("17", run=run_of("mnist"))
    new = job("19", run=run_of("gpt"), name="gpt", submitted=NOON + timedelta(days=1))
    table = typed("status", statuses=[old, new]).stdout
    assert [line.split()[0] for line in table.splitlines()] == ["RUN", "gpt", "mnist"]


def test_all_asks_for_confirmation_and_excludes_names(monkeypatch):
    jobs = [Cancelled(str(number), "a", "RUNNING") for number in range(12)]
    monkeypatch.setattr(job_control.cancelling, "unfinished_jobs", lambda *_: jobs)
    monkeypatch.setattr(job_control.cancelling, "cancel", lambda found, *_: found)
    monkeypatch.setattr(job_control.lookup, "find", lambda *_: [])
    runner = click.testing.CliRunner()

    def cancel(*words):
        return runner.invoke(group, ["cancel", *words], standalone_mode=False)

    for words, said in (
        ((), "name the runs or jobs, or give --all"),
        (("--all", "mnist"), r"--all cannot be combined with names \(mnist\)"),
        (("--all",), "--all selects 12 jobs, and there is no terminal to ask; add --yes"),
    ):
        with pytest.raises(UsageError, match=said):
            raise cancel(*words).exception
    assert cancel("--all", "--yes").stdout.split() == [job.job_id for job in jobs]


def test_a_question_needs_a_terminal(monkeypatch):
    asked = []
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))
    with monkeypatch.context() as closed:
        closed.setattr("sys.stdin", None)
        with pytest.raises(UsageError, match="no terminal"):
            confirm("Cancel 2 jobs?", "there is no terminal")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    confirm("Cancel 2 jobs?", "there is no terminal")
    assert asked == ["Cancel 2 jobs?"]
