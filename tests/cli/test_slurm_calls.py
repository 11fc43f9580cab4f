"""How often each command starts one of Slurm's programs: each is a process, and a question to a busy controller."""

import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
PROGRAMS = ("squeue", "sacct", "scontrol", "sinfo", "sbatch", "scancel", "sacctmgr")
JOBS = 200
SUBMITTED = '{{"job": "{job}", "time": "2026-11-21T22:00:00+00:00"}}\n'
QUEUED = "slurmddp|id={job}|state=RUNNING|submit=2026-11-21T23:00:00|elapsed=10:00|limit=1-00:00:00|name=r{job}\n"
ENDED = "{job}|COMPLETED|2026-11-21T23:00:00|600|0:0|r{job}\n"
SAID = {
    "squeue": "".join(QUEUED.format(job=job) for job in range(1, JOBS // 2 + 1)),
    "sacct": "JobID|State|Submit|ElapsedRaw|ExitCode|JobName\n"
    + "".join(ENDED.format(job=job) for job in range(JOBS // 2 + 1, JOBS + 1)),
}
CALLS = {
    "--help": {},
    "render --nodes 2 --gpus-per-node 8": {"scontrol": 1, "sinfo": 1},
    "status": {"squeue": 1, "sacct": 1},
    "logs r1": {},
    "logs r2": {"squeue": 1, "scontrol": 1},
}
"""The calls of each command; a program that is not named is not called.

`render` fills in what the partition gives. Run r1 has output; of r2, which has none, `logs` asks whether it has ended.
"""


@pytest.fixture
def cluster(tmp_path):
    """Return the variables of a shell in which recorded answers stand in the place of Slurm's programs."""
    (tmp_path / "bin").mkdir()
    for program in PROGRAMS:
        (tmp_path / f"{program}.answer").write_text(SAID.get(program, ""))
        path = tmp_path / "bin" / program
        path.write_text(f"#!/bin/sh\necho {program} >>{tmp_path}/calls\nexec cat {tmp_path}/{program}.answer\n")
        path.chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:/bin:/usr/bin", "HOME": str(tmp_path)}


def calls_of(command, folder, environ):
    """Return how often a command calls each program, and what it prints, in a folder with JOBS runs."""
    for job in range(1, JOBS + 1):
        run = RunDir.named(str(folder / "jobs"), f"r{job}")
        run.create()
        run.submissions.write_text(SUBMITTED.format(job=job))
    RunDir.named(str(folder / "jobs"), "r1").batch_log("1").write_text("said\n")
    words = [SLURMDDP, *command.split()]
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    said = (folder / "calls").read_text().split() if (folder / "calls").exists() else []
    return {program: said.count(program) for program in sorted({*said})}, done.stdout


@pytest.mark.parametrize("command", CALLS)
def test_a_command_starts_slurms_programs_as_often_as_the_table_says(command, tmp_path, cluster):
    assert calls_of(command, tmp_path, cluster)[0] == dict(sorted(CALLS[command].items()))


def test_the_status_of_many_runs_is_complete(tmp_path, cluster):
    assert len(calls_of("status", tmp_path, cluster)[1].splitlines()) == JOBS + 1
