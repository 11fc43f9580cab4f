"""A run's own files tell how far it is; where trackers show it is in what they print."""

import os

import pytest
from event_lines import HEAD, event, write

from slurmddp.monitoring.status import job_status
from slurmddp.runs import facts, history
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def metrics(time, step, **values):
    return event("metrics", time, step=step, total=100, values=values)


def progress(run, *, state="RUNNING", now=100.0):
    job = facts.read_job(run, "7", JobInfo(job_id="7", state=state, source="squeue"), history=history.read_outline(run))
    return job_status.read_progress(run, job, now=now)


def test_how_far_a_job_is(run):
    write(run, metrics(10, 10, loss=0.5, samples_per_s=64.0), metrics(100, 40, loss="nan", samples_per_s=None))
    found = progress(run)
    assert (found.attempt, found.step, found.total, found.samples_per_s) == ("0.0", 40, 100, None)
    assert found.loss != found.loss, "nan"
    assert found.left_s == 60 * 90 / 30
    assert progress(run, state="PENDING").left_s is None
    assert progress(run, now=190.0).left_s == 90.0


@pytest.mark.parametrize(
    "lines",
    [
        [metrics(10, 10)],
        [metrics(10, 10), metrics(11, 10)],
        [metrics(9, 9), {**metrics(10, 10), "total": 0}],
        *([metrics(10, 10), metrics(10, 11)], [metrics(99, 10), metrics(98, 11)]),
        *([{**metrics(time, time), "total": total} for time in (10, 20)] for total in (2**63 - 1, 1e300)),
    ],
)
def test_no_time_is_told_without_a_pace_by_clocks_that_go_back_and_for_a_training_for_ever(run, lines):
    write(run, *lines)
    assert progress(run).left_s is None


def test_values_of_another_kind_are_no_numbers(run):
    write(run, event("metrics", 1, step="x", total=None, values=[3]))
    assert (progress(run).step, progress(run).total, progress(run).loss) == (0, None, None)


def test_the_newest_whole_checkpoint_counts_and_one_of_the_program_itself(run):
    own = run.path / "own.pt"
    for step in (10, 20, 30):
        (run.checkpoints / f"step-{step:09d}").mkdir(parents=True)
    (run.checkpoints / "step-000000020" / "manifest.json").touch()
    write(run)
    assert progress(run).checkpoint_step == 20
    write(run, event("attempt_start", 1, nodes="n1", log_offset=0, checkpoints=f"{run.path}/*.pt"))
    assert progress(run).checkpoint_path == ""
    own.touch()
    os.utime(own, (90, 90))
    found = progress(run)
    assert (found.checkpoint_path, found.checkpoint_age_s, found.checkpoint_step) == (str(own), 10.0, None)


def test_restarts_and_requeues_have_their_reasons(run):
    back = {**HEAD, "attempt": "1.0"}
    again = {**HEAD, "attempt": "2.0"}
    write(
        run,
        event("start", 1),
        event("restart", 2, status=76, reason="peer lost"),
        event("requeue", 3, reason="preempted"),
        {"time": 9, "event": "start", **back},
        {"time": 20, "event": "start", **again},
    )
    found = progress(run)
    assert found.restarts == ((2.0, "peer lost"),)
    assert found.requeues == ((3.0, "preempted"), (9.0, facts.BY_SLURM))


OFFLINE = """\
wandb: Tracking run with wandb version 0.31.0
wandb: Run data is saved locally in /data/wandb/offline-run-20261123_160457-abc123
"""


@pytest.mark.parametrize(
    ("printed", "links"),
    [
        ("wandb: \x1b[33mView run at\x1b[0m https://wandb.ai/a/p/runs/1\r\n", ["wandb: https://wandb.ai/a/p/runs/1"]),
        ("wandb: \N{ROCKET} View run sun-1 at: \x1b[34mhttps://w.ai/1\x1b[0m\n", ["wandb: https://w.ai/1"]),
        (OFFLINE, ["wandb, offline: `wandb sync --yes /data/wandb/offline-run-*-abc123` uploads it"]),
        (
            "\N{RUNNER} View run sly at: http://me:secret@host:5000/#/runs/2\n",
            ["MLflow: http://me:***@host:5000/#/runs/2"],
        ),
        (
            "COMET INFO: Experiment is live on comet.com https://www.comet.com/a/b/1\nwandb: View run x at: http://w/2\n",
            ["wandb: http://w/2", "Comet: https://www.comet.com/a/b/1"],
        ),
        ("View run of the mill at: noon\n", []),
    ],
)
def test_the_addresses_are_those_that_trackers_print(printed, links, tmp_path):
    run = RunDir(tmp_path)
    for attempt, text in [("0.0", "wandb: View run at https://old\n"), ("1.0", printed), ("2.0", "starting\n")]:
        log = run.rank_log("7", attempt, 0)
        log.parent.mkdir(parents=True)
        log.write_text(text)
    assert job_status.find_tracker_links(run, "7") == (tuple(links) or ("wandb: https://old",))
