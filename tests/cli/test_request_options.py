"""`--after` and `--after-ok`: the dependencies that sbatch gets."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from slurmddp.cli import request_options
from slurmddp.config import resolve
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    """Change to a folder whose run `first` has the jobs 5 and 7."""
    monkeypatch.chdir(tmp_path)
    made = RunDir.named("jobs", "first")
    made.create()
    made.submissions.write_text("".join(f"{json.dumps({'job': job})}\n" for job in ("5", "7")))


def dependency_of(given, words, words_ok) -> str | None:
    """Return the dependency of a job whose job file has `given`."""
    Path("job.toml").write_text(f'dependency = "{given}"' if given else "")
    resolved = resolve.resolve(options={}, words=(), job_file=Path("job.toml"), environ={})
    return request_options.add_dependencies(resolved, words, words_ok).spec.dependency


@pytest.mark.parametrize(
    ("given", "words", "words_ok", "dependency"),
    [
        (None, ("3",), (), "afterany:3"),
        (None, ("first",), ("3_1",), "afterany:7,afterok:3_1"),
        ("singleton", (), ("first",), "singleton,afterok:7"),
        ("afterok:1?afterok:2", (), (), "afterok:1?afterok:2"),
    ],
)
def test_jobs_and_runs_become_ids_of_jobs(given, words, words_ok, dependency):
    assert dependency_of(given, words, words_ok) == dependency


def test_all_unfinished_arrays_of_a_sweep_are_waited_for(monkeypatch):
    """An array that has ended is left out, and so is a foreign job that Slurm gave the id of an array."""
    made, script = RunDir.named("jobs", "many"), hashlib.sha256(b"ours").hexdigest()
    made.create()
    records = [{"job": job, "sha256": script, "settings": [{"n": job}, {"n": "0"}]} for job in ("11", "12", "13", "14")]
    made.submissions.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    states = {"11_0": "COMPLETED", "12_0": "COMPLETED", "12_1": "RUNNING", "13_0": "RUNNING", "14_0": "PENDING"}
    monkeypatch.setattr(
        queries, "jobs", lambda *_: [JobInfo(job_id=job, state=state, source="squeue") for job, state in states.items()]
    )
    monkeypatch.setattr(queries, "script_digest", lambda job, *_, **__: "another" if job == "13" else script)
    assert dependency_of(None, ("many",), ()) == "afterany:12,afterany:14"
    assert dependency_of(None, (), ("14",)) == "afterok:14"


@pytest.mark.parametrize(
    ("given", "word", "message"),
    [(None, "fist", "did you mean first?"), ("afterok:1?afterok:2", "3", "write all of it in --dependency")],
)
def test_an_unknown_run_and_a_dependency_of_alternatives_are_refused(given, word, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        dependency_of(given, (word,), ())
