"""How a run on this machine, without Slurm, is or has ended, by its own files. Asks nobody."""

from contextlib import suppress

from slurmddp.outcome import DONE, FAILED, FENCED, RETRYABLE, STOPPED
from slurmddp.rundir import RunDir
from slurmddp.status.records import Ending


def ending(run: RunDir, job_id: str, seen: float | None) -> Ending:
    """Return how a run ended, by the records of its ranks, one that failed by itself first; or that it goes on."""
    if run.runs_here(job_id):
        return Ending("RUNNING", "", "", seen)
    said = dict(_said(run, job_id))
    for status in (FENCED, FAILED, RETRYABLE, STOPPED):
        if status in said:
            return Ending("CANCELLED" if status == STOPPED else "FAILED", said[status], f"{status}:0", seen)
    if DONE in said:
        return Ending("COMPLETED", "", f"{DONE}:0", seen)
    return Ending("UNKNOWN", "it does not run on this machine, and left no last word", "", seen)


def _said(run: RunDir, job_id: str) -> list[tuple[int, str]]:
    """Return what the ranks recorded at the end of the last attempt, status and reason."""
    with suppress(OSError):
        folder = run.attempt(job_id, run.attempts(job_id)[-1]) if run.attempts(job_id) else run.logs
        words = [path.read_text("utf-8", "replace").strip().partition(" ") for path in sorted(folder.glob("*.end"))]
        return [(int(status), reason) for status, _, reason in words if status.isdecimal()]
    return []
