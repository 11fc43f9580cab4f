"""Jobs that fail on a real Slurm are told by cause, rank and host; plain programs, where torch is not the point."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from polling import until

from slurmddp.diagnose.diagnosis import diagnose
from slurmddp.runs.layout import RunDir

PROGRAM = Path(__file__).parent / "programs" / "failing.py"


@pytest.fixture
def by_hand(slurm, tmp_path):
    """Return a function that submits a line of shell on two nodes, as people do by hand."""

    def submit(line: str, *options: str, output: Path | None = None) -> str:
        where = f"--output={output or tmp_path / '%j.out'}"
        shape = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", where, *options)
        return slurm("sbatch", "--parsable", *shape, f"--wrap={line}").strip()

    return submit


def test_jobs_made_by_hand_are_told_by_slurm_and_their_output(by_hand, wait_for_job, slurm, slurm_env, tmp_path):
    step = f"srun --kill-on-bad-exit=1 {sys.executable} {PROGRAM}"
    (tmp_path / "file").touch()
    jobs = {
        "exception": by_hand(f"{step} value"),
        "rank-killed": by_hand(f"{step} kill"),
        "status-swallowed": by_hand(f"{step} value; echo done"),
        "command-missing": by_hand("no-such-program"),
        "output-missing": by_hand("true", output=tmp_path / "file" / "x.out"),
        "none": by_hand("echo 'error: none'"),
        "held": by_hand("true", "--hold"),
        "running": by_hand(f"{step} wait"),
    }
    for cause, job_id in jobs.items():
        if cause not in ("held", "running"):
            wait_for_job(job_id)
    log = tmp_path / f"{jobs['running']}.out"
    until(lambda: "waiting" in (log.read_text() if log.exists() else ""))
    found = {cause: diagnose(None, job_id, slurm_env) for cause, job_id in jobs.items()}
    assert {cause: one.cause for cause, one in found.items()} == {cause: cause for cause in jobs}
    for cause in ("exception", "rank-killed", "status-swallowed"):
        assert (found[cause].rank, found[cause].host) == (1, "n2"), cause
    slurm("scancel", jobs["held"], jobs["running"])
    wait_for_job(jobs["running"])
    ended = diagnose(None, jobs["running"], slurm_env)
    assert (ended.cause, ended.state, ended.rank) == ("cancelled", "CANCELLED", None)


def test_a_run_is_told_by_its_name_and_its_id(slurm_env, wait_for_job, tmp_path):
    slurmddp = [sys.executable, "-m", "slurmddp"]
    shape = ["-N", "2", "--ntasks-per-node", "1", "-c", "1", "-t", "10", "--max-restarts", "0", "--name", "wrong"]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        done = [*slurmddp, *words]
        return subprocess.run(done, cwd=tmp_path, env=slurm_env, capture_output=True, text=True, check=False)

    job_id = call("submit", *shape, str(PROGRAM), "value").stdout.strip()
    wait_for_job(job_id)
    by_name, by_id, by_nothing = call("diagnose", "wrong"), call("diagnose", job_id, "--json"), call("diagnose")
    assert (by_name.returncode, by_id.returncode, by_nothing.stdout) == (0, 0, by_name.stdout)
    assert "ValueError: the data of rank 1 is wrong [exception]\nfirst: rank 1 on n2, attempt 0.0\n" in by_name.stdout
    (told,) = json.loads(by_id.stdout)["diagnoses"]
    assert (told["cause"], told["rank"], told["host"], told["state"]) == ("exception", 1, "n2", "FAILED")
    assert diagnose(RunDir(tmp_path / "jobs" / "wrong"), job_id, slurm_env).others == "1 rank was ended with it"
    unknown, nowhere = call("diagnose", "worng"), call("diagnose", "1")
    assert (unknown.returncode, nowhere.returncode) == (2, 3)
    assert "did you mean wrong?" in unknown.stderr
    assert "Slurm does not know it, and there are no files of it here" in nowhere.stderr
