"""Failures of several runs: what they cost, and what they have in common."""

import json
from datetime import UTC, datetime

import pytest

from slurmddp import cli
from slurmddp.diagnose.failures import find_failures, format_failures
from slurmddp.monitoring.status import read_runs
from slurmddp.runs import lookup
from slurmddp.runs.facts import read_run
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo, Listing

BEGAN = 1_795_300_000.0


def make_run(tmp_path, name, job, *, host, error, began=BEGAN):
    """Leave a run of two ranks that trained for an hour, saved, trained for half an hour, and failed."""
    run = RunDir(tmp_path / "jobs" / name)
    run.create()
    append_record(run.submissions, {"job": job, "time": "2026-11-21T12:00:00Z"})
    run.attempt(job, "0.0").mkdir(parents=True)
    run.rank_log(job, "0.0", 1).write_text(f"Traceback (most recent call last):\n  File 'a'\n{error}\n")
    run.rank_record(job, "0.0", 1).write_text(f"77 rank 1 on {host}: {error}\n")
    head = {"job": job, "attempt": "0.0", "host": "n1"}
    for after_s, kind, fields in (
        (0, "attempt_start", {"nodes": "n[1-2]", "log_offset": 0, "allocated": None}),
        (1, "start", {"rank": 0, "world_size": 2}),
        (3600, "checkpoint", {"rank": 0, "step": 10}),
        (5400, "attempt_end", {"status": 77, "reason": "rank 1"}),
        (5400, "job_end", {"status": 77, "reason": "rank 1"}),
    ):
        append_record(run.events, {"time": began + after_s, "event": kind, "rank": None, **head, **fields})
    return run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return [
        make_run(tmp_path, "a", "11", host="n17", error="ValueError: label 12"),
        make_run(tmp_path, "b", "12", host="n17", error="ValueError: label 12"),
        make_run(tmp_path, "c", "13", host="n4", error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        make_run(tmp_path, "d", "14", host="n17", error="KeyError: 'x'", began=BEGAN - 10 * 86400),
    ]


def test_a_table_has_causes_nodes_and_the_gpu_hours_since_the_last_checkpoint(runs):
    found = list(find_failures(map(read_run, runs), since=BEGAN - 86400))
    assert [(one.name, one.nodes, one.lost_gpu_hours) for one in found] == [
        ("a", ("n17",), 1.0), ("b", ("n17",), 1.0), ("c", ("n4",), 1.0),
    ]  # fmt: skip
    lines = [line.split() for line in format_failures(found)]
    assert lines[1] == ["exception", "2", "2", "n17", "a,", "b"]
    assert lines[2] == ["gpu-memory", "1", "1", "n4", "c"]
    assert " ".join(lines[3]) == "n17 had a part in 2 of 3 failures"


def test_a_set_up_that_failed_is_counted(runs):
    runs[0].batch_record("11").write_text("127 set-up failed with status 127: module load nosuch/1\n")
    found = [one for one in find_failures([read_run(runs[0], silent=True)], since=0.0) if not one.nodes]
    assert [one.lost_gpu_hours for one in found] == [0.0]
    assert "module load nosuch/1" in found[0].diagnosis.what or "module" in found[0].diagnosis.evidence[0].text


def test_an_end_that_slurm_alone_knows_is_counted_once(runs):
    """As that of a node that was lost: the last attempt has recorded none."""
    lines = runs[0].events.read_text().splitlines()[:-2]
    runs[0].events.write_text("\n".join(lines) + "\n")
    runs[0].rank_record("11", "0.0", 1).unlink()
    runs[0].rank_log("11", "0.0", 1).write_text("")
    assert list(find_failures([read_run(runs[0], silent=True)], since=0.0)) == []
    ended = datetime.fromtimestamp(BEGAN + 5400, UTC)
    answer = JobInfo(job_id="11", state="NODE_FAIL", source="squeue", name="a", nodes="n[1-2]", ended=ended)
    (found,) = find_failures([read_run(runs[0], {"11": answer})], since=0.0, environ={"PATH": ""})
    assert (found.diagnosis.cause, found.time, found.lost_gpu_hours) == ("node-lost", BEGAN + 5400, 1.0)


@pytest.mark.usefixtures("runs")
def test_the_command_prints_all_failures_of_the_last_days(capsys):
    assert cli.run_command_line(["diagnose", "--all", "--since", "99999999999999d", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["failures"]] == ["a", "b", "c", "d"]
    assert cli.run_command_line(["diagnose", "--all", "--since", "soon"]) == 2
    assert "is not a number of days, hours or minutes, as in 7d" in capsys.readouterr().err
    assert cli.run_command_line(["diagnose", "--all", "a"]) == 2
    assert "leave it out" in capsys.readouterr().err


def test_no_process_is_started_for_an_attempt_without_dumps(runs, monkeypatch):
    """Of two thousand runs, one for each attempt that failed took most of the time."""
    monkeypatch.setattr("subprocess.run", None)
    assert [one.diagnosis.cause for one in find_failures([read_run(runs[0])], since=0.0)] == ["exception"]


def test_slurm_is_asked_of_the_jobs_alone_that_have_recorded_no_end(runs, monkeypatch):
    runs[0].events.write_text("".join(runs[0].events.read_text().splitlines(keepends=True)[:-2]))
    runs[0].rank_record("11", "0.0", 1).unlink()
    asked = []
    row = JobInfo(job_id="11", state="NODE_FAIL", source="squeue", name="a", ended=datetime.fromtimestamp(BEGAN, UTC))
    monkeypatch.setattr(queries, "queue", lambda ids, *_, **__: asked.extend(ids) or Listing((row,)))
    found = list(read_runs([lookup.find_all_jobs(run) for run in runs], {}))
    assert asked == ["11"] and [run.jobs[0].outcome.kind for run in found] == ["node_lost", *["failed"] * 3]
