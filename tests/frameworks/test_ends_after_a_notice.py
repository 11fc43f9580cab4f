"""However a program ends after a notice, the job comes back, unless the program is known to be complete."""

import re

import pytest
from polling import until

pytestmark = [pytest.mark.soak, pytest.mark.long]
PYTHON = """\
import os, signal, sys, time
end = sys.argv[1]
if os.environ["SLURMDDP_ATTEMPT"] != "0.0":
    sys.exit(0)
def leave(*_):
    if end.isdigit():
        sys.exit(int(end))
    if end == "raise":
        raise RuntimeError("in the handler")
    signal.signal(getattr(signal, end), signal.SIG_DFL) if end != "SIGKILL" else None
    os.kill(os.getpid(), getattr(signal, end))
if end == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif end != "none":
    signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
for _ in range(40 if end == "ignore" else 6000):
    time.sleep(0.1)
"""
SHELL = """\
[ "$SLURMDDP_ATTEMPT" = 0.0 ] || exit 0
{trap}
echo ready
while :; do sleep 0.1; done
"""
ENDS = ["0", "75", "143", "1", "raise", "SIGTERM", "SIGUSR2", "SIGKILL", "none"]


@pytest.mark.parametrize("notice", ["preempted", "time limit"])
@pytest.mark.parametrize("end", [*ENDS, "sh 0", "sh 75", "sh 1", "sh none"])
def test_it_comes_back(end, notice, submit, sandbox, slurm, wait_for_job, tmp_path, record_property):
    job = start(submit, tmp_path, end)
    tell(notice, job, sandbox, slurm)
    ended = wait_for_job(job.job_id)
    attempts = [path.name for path in job.attempts()]
    said = [event.get("reason", "") for event in job.events("requeue")] or re.findall(
        r"slurmddp: (.*)", job.run.batch_log(job.job_id).read_text()
    )
    record_property("row", f"{end} | {notice} | {ended['JobState']} | {attempts} | {said}")
    assert ended["JobState"] == "COMPLETED" and len(attempts) == 2, job.story()


@pytest.mark.parametrize("end", ["0", "ignore"])
def test_a_program_that_is_complete_does_not_come_back(end, submit, sandbox, slurm, wait_for_job, tmp_path):
    job = start(submit, tmp_path, end, "--after-signal-exit-0=done")
    tell("preempted", job, sandbox, slurm)
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
    assert len(job.attempts()) == 1, job.story()


def start(submit, folder, end, *options):
    if end.startswith("sh "):
        trap = "" if end == "sh none" else f"trap 'exit {end[3:]}' TERM USR2"
        (folder / "program.sh").write_text(SHELL.format(trap=trap))
        words = ["--no-python", "bash", "program.sh"]
    else:
        (folder / "program.py").write_text(PYTHON)
        words = ["program.py", end]
    job = submit("job", "srun", *options, *words)
    until(lambda: job.output().count("ready") == 2, otherwise=job.story)
    return job


def tell(notice, job, sandbox, slurm):
    if notice == "preempted":
        sandbox.preempt(job.job_id)
    else:
        slurm("scancel", "--signal=USR2", job.job_id)
