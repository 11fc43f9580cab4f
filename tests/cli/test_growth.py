"""How the work of `status` grows with the runs, in files and calls of functions, which no busy machine changes."""

import json
import subprocess
import sys

import pytest

from slurmddp.runs.layout import RunDir

RUNS = 40
QUEUED = "slurmddp|id={job}|state=RUNNING|submit=2026-11-21T23:00:00|elapsed=10:00|limit=1-00:00:00|name=r{job}\n"
COUNTED = """
import atexit, json, os, sys
found = {"files": 0, "calls": 0}
def audit(event, args):
    if event in ("open", "os.listdir", "os.scandir") and "/jobs" in str(args[0]):
        found["files"] += 1
def profile(frame, event, arg):
    found["calls"] += event == "call"
atexit.register(lambda: print(json.dumps(found), file=sys.stderr))
from slurmddp.cli import run_command_line, status
sys.stdout.isatty = lambda: True
sys.addaudithook(audit)
sys.setprofile(profile)
run_command_line(["status"])
"""
"""Runs `status` as on a terminal; the last line of stderr has the files of runs that it has opened, and its calls."""


@pytest.fixture
def counted(tmp_path):
    """Return a function that counts the work of `status` with so many runs, of which the half waits in the queue."""

    def count(runs):
        folder = tmp_path / str(runs)
        for job in range(1, runs + 1):
            run = RunDir.named(str(folder / "jobs"), f"r{job}")
            run.create()
            run.submissions.write_text(f'{{"job": "{job}", "time": "2026-11-21T22:00:00+00:00"}}\n')
        (folder / "bin").mkdir()
        (folder / "answer").write_text("".join(QUEUED.format(job=job) for job in range(1, runs // 2 + 1)))
        (folder / "bin" / "squeue").write_text(f"#!/bin/sh\nexec cat {folder}/answer\n")
        (folder / "bin" / "squeue").chmod(0o755)
        environ = {"PATH": f"{folder}/bin:/bin:/usr/bin", "HOME": str(folder)}
        words = [sys.executable, "-c", COUNTED]
        done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert done.stdout.count("RUNNING") == runs // 2
        return json.loads(done.stderr.splitlines()[-1])

    return count


def test_status_opens_each_file_of_a_run_once_and_its_calls_are_a_constant_for_each_run(counted):
    few, more, most = (counted(RUNS * factor) for factor in (1, 2, 4))
    assert (
        more["files"] - few["files"] <= 4 * RUNS
    )  # its submissions, events, checkpoints; where Slurm forgot it, its end
    assert most["calls"] - more["calls"] == pytest.approx(2 * (more["calls"] - few["calls"]), rel=0.05)
