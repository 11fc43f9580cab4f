"""How often commands start Slurm's programs, each a question to a busy controller, and how their work grows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
PROGRAMS = ("squeue", "sacct", "scontrol", "sinfo", "sbatch", "scancel", "sacctmgr")
JOBS = 40
SUBMITTED = '{{"job": "{job}", "time": "2026-11-21T22:00:00+00:00"}}\n'
QUEUED = "slurmddp|id={job}|state=RUNNING|submit=2026-11-21T23:00:00|elapsed=10:00|limit=1-00:00:00|name=r{job}\n"
HEAD = "JobID|State|Submit|ElapsedRaw|ExitCode|JobName\n"
ENDED = "{job}|COMPLETED|2026-11-21T23:00:00|600|0:0|r{job}\n"
CALLS = {
    "--help": {},
    "render --nodes 2 --gpus-per-node 8": {"scontrol": 1, "sinfo": 1},
    "status": {"squeue": 1, "sacct": 1},
    "logs r1": {},
    "logs r2": {"scontrol": 1, "sacct": 1},
}
"""The calls of each command; a program that is not named is not called.

`render` fills in what the partition gives. Run r1 has output; of r2, which has none, `logs` asks whether it has ended.
"""


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
def cluster(tmp_path):
    """Return a function that makes a folder of so many runs, of which Slurm's stand-ins know one half as running."""

    def make(jobs):
        folder = tmp_path / str(jobs)
        (folder / "bin").mkdir(parents=True)
        for job in range(1, jobs + 1):
            run = RunDir.named(str(folder / "jobs"), f"r{job}")
            run.create()
            run.submissions.write_text(SUBMITTED.format(job=job))
        RunDir.named(str(folder / "jobs"), "r1").batch_log("1").write_text("said\n")
        said = {
            "squeue": "".join(QUEUED.format(job=job) for job in range(1, jobs // 2 + 1)),
            "sacct": HEAD + "".join(ENDED.format(job=job) for job in range(jobs // 2 + 1, jobs + 1)),
        }
        for program in PROGRAMS:
            (folder / f"{program}.answer").write_text(said.get(program, ""))
            path = folder / "bin" / program
            path.write_text(f"#!/bin/sh\necho {program} >>{folder}/calls\nexec cat {folder}/{program}.answer\n")
            path.chmod(0o755)
        return folder

    return make


def call(words, folder):
    environ = {"PATH": f"{folder}/bin:/bin:/usr/bin", "HOME": str(folder)}
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", CALLS)
def test_a_command_starts_slurms_programs_as_often_as_the_table_says(command, cluster):
    folder = cluster(JOBS)
    done = call([SLURMDDP, *command.split()], folder)
    said = (folder / "calls").read_text().split() if (folder / "calls").exists() else []
    assert {program: said.count(program) for program in {*said}} == CALLS[command]
    assert command != "status" or len(done.stdout.splitlines()) == JOBS + 1, "it is complete"


def test_status_asks_the_controller_about_a_few_jobs_by_one_process(cluster):
    folder = cluster(4)
    call([SLURMDDP, "status"], folder)
    assert sorted((folder / "calls").read_text().split()) == ["sacct", "scontrol"]


def test_status_opens_each_file_of_a_run_once_and_its_calls_are_a_constant_for_each_run(cluster):
    """Files and calls of functions are counted, which no busy machine changes."""
    answers = [call([sys.executable, "-c", COUNTED], cluster(JOBS * factor)) for factor in (1, 2, 4)]
    few, more, most = (json.loads(done.stderr.splitlines()[-1]) for done in answers)
    assert answers[0].stdout.count("RUNNING") == JOBS // 2
    # the submissions and events of a run, and its folder
    assert more["files"] - few["files"] <= 3 * JOBS
    assert most["calls"] - more["calls"] == pytest.approx(2 * (more["calls"] - few["calls"]), rel=0.05)
