"""A program that resumes only when an argument says so: one that has the marks of nanoGPT, in place of nanoGPT."""

import re

import pytest
from command_line import slurmddp
from polling import until

from slurmddp.runs.layout import RunDir

PROGRAM = """\
import os, pathlib, sys, time
# configurator.py
given = dict(word.split("=", 1) for word in sys.argv[1:])
out = pathlib.Path(given["--out_dir"])
init_from = given["--init_from"]
step = int((out / 'ckpt.pt').read_text()) if init_from == 'resume' else 0
print("starts at", step, "restart", os.environ["SLURMDDP_RESTARTS"], flush=True)
while step < 6 or not (out / "end").exists():
    step += 1
    out.mkdir(exist_ok=True)
    (out / "part").write_text(str(step)); (out / "part").rename(out / "ckpt.pt")
    print("saved", flush=True)
    time.sleep(0.2)
"""

pytestmark = pytest.mark.long


def test_preempted_twice_it_never_starts_at_step_0_again(slurm_env, long_grace, wait_for_job, sandbox, tmp_path):
    del long_grace
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "ckpt.pt").write_text("99")  # of an earlier job: this one begins at 0
    shape = ["--partition=low", "--ntasks-per-node=1", "--name=x"]
    words = ["train.py", "--init_from=scratch", "--out_dir=out"]
    job_id = slurmddp("submit", *shape, *words, cwd=tmp_path, environ=slurm_env).strip()
    run = RunDir(tmp_path / "jobs" / "x")

    def output(attempt: str) -> str:
        log = run.rank_log(job_id, attempt, 0)
        return log.read_text() if log.exists() else ""

    for attempt in ("0.0", "1.0"):
        until(lambda attempt=attempt: "saved" in output(attempt), otherwise=lambda: run.batch_log(job_id).read_text())
        sandbox.preempt(job_id)
    until(lambda: "saved" in output("2.0"), otherwise=lambda: run.batch_log(job_id).read_text())
    status = "".join(slurmddp("status", job_id, cwd=tmp_path, environ=slurm_env).split())  # a long path is wrapped
    assert f"checkpoint{tmp_path}/out/ckpt.pt," in status
    (tmp_path / "out" / "end").touch()
    assert wait_for_job(job_id)["JobState"] == "COMPLETED", run.batch_log(job_id).read_text()
    starts = [re.search(r"starts at (\d+) restart (\d)", output(f"{n}.0")).groups() for n in range(3)]
    steps = [int(step) for step, _ in starts]
    assert steps[0] == 0 < steps[1] < steps[2] < 99
    assert [restart for _, restart in starts] == ["0", "1", "2"]
    assert not run.requeues(job_id).exists(), "preemptions do not count as requeues by itself"
