"""Ask Slurm in a thread, since its programs may be slow and the screen must not wait. No terminal."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from slurmddp.background import run_in_background
from slurmddp.errors import SlurmddpError
from slurmddp.monitoring import status
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs import lookup
from slurmddp.slurm.states import Phase
from slurmddp.submission import cancel, requeue

POLL_S: Final = 10.0
"""Seconds between two questions; sites throttle users who ask the controller more often."""
_ORDER: Final[Mapping[Phase, int]] = {"running": 0, "queued": 1, "unknown": 2}

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """An answer of Slurm."""

    jobs: tuple[JobStatus, ...]
    time: float
    """In seconds since 1970."""


class Poller:
    """Asks Slurm every ten seconds and on request, and carries out requests of the user."""

    def __init__(self, words: Sequence[str], runs_dir: str, environ: Environ, wake: Callable[[], None]) -> None:
        """Set the words that name runs and jobs; `wake` is called after each change."""
        self._words, self._runs_dir, self._environ, self._wake = words, runs_dir, environ, wake
        self._requested = threading.Event()
        self.last: Answer | None = None
        self.asking = False
        self.message = ""
        """The result of the last request, or why there is no answer."""

    def start(self) -> None:
        """Start asking, in a daemon thread."""
        run_in_background(self._work).add_done_callback(Future.result)

    def refresh(self) -> None:
        """Ask Slurm now."""
        self._requested.set()

    def cancel(self, job_id: str) -> None:
        """Cancel a job, in a thread."""
        jobs = [job for job in (self.last.jobs if self.last else ()) if job.job_id == job_id]
        self._run(lambda: cancel.cancel(jobs, self._environ, self._show_message), f"job {job_id} is cancelled")

    def requeue(self, job_id: str) -> None:
        """Requeue a job, in a thread."""
        self._run(
            lambda: requeue.requeue(job_id, exclude=(), environ=self._environ, notice=self._show_message),
            f"job {job_id} is requeued",
        )

    def ask(self) -> None:
        """Ask Slurm once, in this thread."""
        self.asking = True
        self._wake()
        runs = [status.last_submission(target) for target in lookup.find(self._words, self._runs_dir)]
        targets = [setting for run in runs for setting in lookup.settings(run)]
        jobs = sorted(status.query_jobs(targets, self._environ), key=_sort_key)
        self.last, self.asking = Answer(tuple(jobs), time.time()), False
        self._wake()

    def _work(self) -> None:
        while True:
            try:
                self.ask()
            except (SlurmddpError, OSError) as error:
                self.asking = False
                self._show_message(str(error))
            self._requested.wait(POLL_S)
            self._requested.clear()

    def _run(self, request: Callable[[], object], message: str) -> None:
        def report(future: Future[object]) -> None:
            error = future.exception()
            if error and not isinstance(error, SlurmddpError | OSError):
                raise error
            self._show_message(str(error) if error else message)
            self.refresh()

        run_in_background(request).add_done_callback(report)

    def _show_message(self, message: str) -> None:
        self.message = message
        self._wake()


def _sort_key(job: JobStatus) -> tuple[int, float]:
    """Return the key that sorts running before pending before ended jobs, the newest first."""
    moment = job.ended or job.started or job.submitted
    return _ORDER.get(job.phase, 3), -moment.timestamp() if moment else 0.0
