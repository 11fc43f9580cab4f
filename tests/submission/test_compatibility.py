"""Whether a run takes another job while one of it is active. Slurm is asked in one test only."""

import re
from pathlib import Path

import pytest

from slurmddp import cli
from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.errors import UsageError
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.submission.compatibility import check_idle

SCRIPT = "#!/bin/bash\n#SBATCH -J own\n#SBATCH --array={}\nsrun python train.py\n"


def refused(tasks, active, monkeypatch, **options) -> str:
    """Return the refusal of an array of these tasks while those of job 17 are active; empty when there is none."""
    Path("own.sbatch").write_text(SCRIPT.format(tasks))
    resolved = resolve.resolve(options=options, words=("own.sbatch",), job_file=None, environ={})
    run = RunDir.named("jobs", resolved.spec.job_name)
    run.create()
    append_record(run.submissions, {"job": "17", "sha256": "x", "settings": [], "indices": []})
    listed = [JobInfo(job_id=f"17_{task}", state=state, source="squeue") for task, state in active.items()]
    monkeypatch.setattr(queries, "jobs", lambda *_: listed)
    monkeypatch.setattr(queries, "script_digest", lambda *_: "x")
    try:
        check_idle(Request(resolved), run, {})
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("tasks", "active", "options", "what"),
    [
        ("0-3", {1: "RUNNING"}, {}, "job 17_1, which is RUNNING; wait for it, cancel it with `slurmddp cancel 17_1`"),
        ("0-3", {0: "RUNNING", 1: "PENDING", 9: "RUNNING"}, {}, "job 17, which has 2 of these tasks queued or running"),
        ("0-3", {0: "RUNNING", 1: "PENDING"}, {}, "cancel it with `slurmddp cancel 17`, or choose another --name"),
        ("0-3", {0: "COMPLETED", 1: "FAILED"}, {}, ""),
        ("3", {0: "RUNNING"}, {}, ""),
        ("0-3", {0: "RUNNING"}, {"dependency": "aftercorr:17"}, ""),
        ("0", {0: "RUNNING"}, {"dependency": "afterok:17_0"}, ""),
        ("0-1", {0: "RUNNING", 1: "RUNNING"}, {"dependency": "afterok:17_0"}, "job 17_1, which is RUNNING"),
    ],
)
def test_an_array_of_a_script_is_refused_while_a_task_that_it_has_is_active(
    tasks, active, options, what, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    said = refused(tasks, active, monkeypatch, **options)
    assert (what in said and said.startswith("run own belongs to ")) if what else said == ""


def test_an_array_that_is_submitted_again_while_it_waits_is_refused(slurm, slurm_env, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for name, value in slurm_env.items():
        monkeypatch.setenv(name, value)
    Path("train.py").write_text("")
    Path("own.sbatch").write_text(SCRIPT.format("0-2"))
    assert cli.run_command_line(["submit", "--hold", "own.sbatch"]) == 0
    job_id = capfd.readouterr().out.strip()
    try:
        assert cli.run_command_line(["submit", "--hold", "own.sbatch"]) == 2
        said = capfd.readouterr().err
        what = f"run own belongs to job {job_id}, which has 3 of these tasks queued or running"
        assert re.fullmatch(rf"Error: {what}; .*`slurmddp cancel {job_id}`.*\n", said)
        cli.run_command_line(["doctor", "own.sbatch"])
        found = " ".join(capfd.readouterr().out.split())
        assert f"run own belongs to job {job_id}_0, which is PENDING" in found
        Path("own.sbatch").write_text(SCRIPT.format("5"))
        assert cli.run_command_line(["submit", "--hold", "own.sbatch"]) == 0
        slurm("scancel", capfd.readouterr().out.strip())
    finally:
        slurm("scancel", job_id)
