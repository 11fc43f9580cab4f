"""The state and the result of an executor's job: from Slurm, else from its files. Works without slurmdbd."""

import os
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from submitit.core import logger, utils
from submitit.slurm import slurm as theirs

from slurmddp.errors import ClusterError
from slurmddp.outcome import Kind
from slurmddp.runs.facts import read_job
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import client, commands
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import has_ended

GONE: Final = "GONE"
"""The state of a job that Slurm no longer knows."""
CALL_VARIABLE: Final = "SUBMITIT_CALL"
"""Tells a job where its pickled calls are; sbatch takes it from the environment."""


def call_file(handover: Path, index: int) -> Path:
    """Return where a call waits until its job has a number: the call of the array's task `index`, or 0."""
    return handover.with_name(f"{handover.name}.{index}.pkl")


class Watcher(theirs.SlurmInfoWatcher):
    """Asks Slurm for the states of all jobs of this process at once; only final states are kept.

    A state is GONE when Slurm no longer knows the job, UNKNOWN before the first answer.
    """

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Tell whether the job has ended and Slurm will not run it again."""
        state = self.get_state(job_id, mode)
        return state == GONE or has_ended(state)

    def update(self) -> None:
        """Ask Slurm for the jobs that have not ended; keep the known states when it does not answer."""
        wanted = sorted(self._registered - self._finished)
        if not wanted:
            return
        self._num_calls += 1
        try:
            states = query_states(wanted)
        except ClusterError as error:
            logger.get_logger().warning(f"Slurm does not answer; the next call asks again: {error}")
            states = {}
        self._info_dict.update({job_id: {"JobID": job_id, "State": state} for job_id, state in states.items()})
        self._last_status_check = time.time()
        self._finished |= {job_id for job_id in states if self.is_done(job_id, mode="cache")}


class Job(theirs.SlurmJob[Any]):
    """A submitted call, or one of its ranks: submitit's class with other answers for a job that has ended."""

    watcher = Watcher(delay_s=10)

    @property
    def _run(self) -> RunDir:
        return RunDir(self.paths.folder.with_name(f"{self.paths.folder.name}.runs") / self.job_id)

    @property
    def state(self) -> str:
        """Slurm's state; the files say of a forgotten job how it ended, of one that Slurm ended if it was done."""
        has_result = self.paths.result_pickle.exists() and not self.watcher.is_done(self.job_id, mode="cache")
        state = self.watcher.get_state(self.job_id, mode="force" if has_result else "standard")  # its end is near
        if state not in (GONE, "PREEMPTED", "TIMEOUT"):
            return state
        known = JobInfo(job_id=self.job_id, state=state, source="squeue") if state != GONE else None
        if read_job(self._run, self.job_id, known).outcome.kind is Kind.DONE:
            return "COMPLETED"
        return "FAILED" if state == GONE else state

    def exception(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """Wait for the end; return the error of a rank that has one in its result file, else that of a killed rank."""
        self.wait()
        if not self._sub_jobs:
            return super().exception()
        reported_first = sorted(self._sub_jobs, key=lambda job: not job.paths.result_pickle.exists())
        return next((error for job in reported_first if (error := job.exception())), None)

    def results(self) -> list[Any]:
        """Wait for the end; return the results of all ranks, or raise the error that `exception` returns."""
        if self._sub_jobs and (error := self.exception()):
            raise error
        return list(super().results())

    def result(self) -> Any:
        """Wait for the end; return the result, or a list of results when there are several ranks."""
        results = self.results()
        return results if self._sub_jobs else results[0]

    def cancel(self, check: bool = True) -> None:  # noqa: FBT001, FBT002 - submitit's signature
        """Cancel the job without a requeue; with `check`, raise ClusterError when Slurm refuses."""
        with nullcontext() if check else suppress(ClusterError):
            client.order(commands.cancel(self.job_id), os.environ)

    def _get_logs_string(self, name: str) -> str | None:
        """Return what all attempts have printed, at its head the batch script's lines; replace what is not UTF-8."""
        path = self.paths.stdout if name == "stdout" else self.paths.stderr
        has_errors = name == "stderr" or not self.paths.stderr.is_symlink()
        own = f"{self.paths.task_id}.{'out' if has_errors else 'stdout'}"
        files = [self._run.batch_log(self.job_id)] if own == "0.out" else []
        files += [self._run.attempt(self.job_id, attempt) / own for attempt in self._run.attempts(self.job_id)]
        found = [file for file in (files if path.is_symlink() else [path]) if file.exists()]
        return "".join(file.read_text("utf-8", "replace") for file in found) if found else None


def query_states(job_ids: Iterable[str]) -> dict[str, str]:
    """Return the state of each job, `17` or `17_3`; GONE for a job that Slurm no longer knows.

    Raises ClusterError when the controller does not answer.
    """
    from slurmddp.monitoring.status import query_jobs  # noqa: PLC0415 - a rank does not need it
    from slurmddp.runs.lookup import Target  # noqa: PLC0415 - as above

    found = query_jobs([Target(None, tuple(job_ids))], os.environ, brief=True)
    if silence := next((job.silence for job in found if job.silence), ""):
        raise ClusterError(client.explain_silence(silence))
    return {job.job_id: job.slurm.state if job.slurm else GONE for job in found}
