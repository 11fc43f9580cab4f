"""What became of an executor's job: Slurm's word first, then that of the files. Without slurmdbd, too."""

import os
import pickletools
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from submitit.core import logger, utils
from submitit.slurm import slurm as theirs

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, queries
from slurmddp.slurm.states import OVER, phase_of

GONE: Final = "GONE"
"""Slurm has answered, and knows nothing of the job any more."""


class Watcher(theirs.SlurmInfoWatcher):
    """Asks Slurm for the states of all jobs of this process at once; none that may change is kept for good."""

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return the state of a job: Slurm's word, GONE, or UNKNOWN as long as nobody has answered."""
        return str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Tell whether the job will not run again by itself."""
        state = self.get_state(job_id, mode)
        return state == GONE or phase_of(state) in OVER

    def update(self) -> None:
        """Ask Slurm for those that have not ended; what was known stays where it does not answer."""
        wanted = sorted(self._registered - self._finished)
        if not wanted:
            return
        self._num_calls += 1
        try:
            states = look(wanted)
        except ClusterError as error:
            logger.get_logger().warning(f"Slurm does not answer, asking again: {error}")
            states = {}
        self._info_dict.update({job_id: {"JobID": job_id, "State": state} for job_id, state in states.items()})
        self._last_status_check = time.time()
        self._finished |= {job_id for job_id in states if self.is_done(job_id, mode="cache")}


class Job(theirs.SlurmJob[Any]):
    """A submitted call, or one of its ranks: submitit's own, but for what it says of a job that has ended."""

    watcher = Watcher(delay_s=30)

    @property
    def state(self) -> str:
        """The state of the job in Slurm's words; of one that Slurm has forgotten, as its files have it."""
        state = str(super().state)
        return state if state != GONE else self._state_by_files()

    def exception(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """Wait for the end; return the error of a rank that says why it failed before that of one that was killed."""
        self.wait()
        if not self._sub_jobs:
            return super().exception()
        told = [job for job in self._sub_jobs if job.paths.result_pickle.exists()]
        silent = [job for job in self._sub_jobs if job not in told]
        return next((error for job in (*told, *silent) if (error := job.exception())), None)

    def results(self) -> list[Any]:
        """Wait for the end; return every rank's result, or raise as `exception` says."""
        self.wait()
        error = self.exception() if self._sub_jobs else None
        if error:
            raise error
        return list(super().results())

    def result(self) -> Any:
        """Wait for the end; return the result, of several ranks the list of theirs."""
        results = self.results()
        return results if self._sub_jobs else results[0]

    def cancel(self, check: bool = True) -> None:  # noqa: FBT001, FBT002 - submitit's signature
        """Cancel the job, for good; with `check`, raise ClusterError when Slurm does not."""
        try:
            client.order(["scancel", self.job_id], os.environ)
        except ClusterError:
            if check:
                raise

    def _interrupt(self, timeout: bool = False) -> None:  # noqa: FBT001, FBT002 - submitit's signature
        """Send what a preemption sends, or with `timeout` what comes before the time limit."""
        for name in ["USR2"] if timeout else ["TERM", "USR2"]:
            client.order(["scancel", f"--signal={name}", self.job_id], os.environ)

    def _get_logs_string(self, name: str) -> str | None:
        """Return what was printed, also where some of it is no text in UTF-8."""
        path = self.paths.stdout if name == "stdout" else self.paths.stderr
        return path.read_text("utf-8", "replace") if path.exists() else None

    def _state_by_files(self) -> str:
        succeeded = all(_has_succeeded(job.paths.result_pickle) for job in self._sub_jobs or [self])
        return "COMPLETED" if succeeded else "FAILED"


def _has_succeeded(result: Path) -> bool:
    """Tell by the first word of a result, which is not made anew: that could run anything, and take any time."""
    try:
        with result.open("rb") as file:
            words = (word for _, word, _ in pickletools.genops(file) if isinstance(word, str))
            return next(words, "") == "success"
    except (OSError, ValueError):
        return False


def look(job_ids: Iterable[str]) -> dict[str, str]:
    """Return the state of each job, `17` or `17_3`: by squeue, then scontrol, then sacct where there is one.

    GONE are those that none of them knows. Raises ClusterError when the controller does not answer.
    """
    wanted = set(job_ids)
    states = _by_squeue(_parents(wanted))
    for ask in (_by_scontrol, _by_sacct):
        states |= ask(_parents(wanted - states.keys()))
    return {job_id: states.get(job_id, GONE) for job_id in wanted}


def _parents(job_ids: Iterable[str]) -> list[str]:
    """Return the arrays that the jobs belong to, and the jobs that belong to none."""
    return sorted({job_id.partition("_")[0] for job_id in job_ids}, key=int)


def _by_squeue(job_ids: Sequence[str]) -> dict[str, str]:
    return {job.job_id: job.state for job in queries.jobs(job_ids, os.environ)} if job_ids else {}


def _by_scontrol(job_ids: Sequence[str]) -> dict[str, str]:
    return {job.job_id: job.state for job_id in job_ids for job in queries.show(job_id, os.environ)}


def _by_sacct(job_ids: Sequence[str]) -> dict[str, str]:
    """Ask the accounting, if there is one: what it does not say is not known."""
    return {job.job_id: job.state for job in queries.accounted(job_ids, os.environ)} if job_ids else {}
