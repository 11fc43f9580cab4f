"""Slurm, asked beside the screen: its programs may take their time. Threads; no terminal."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from slurmddp.errors import SlurmddpError
from slurmddp.monitoring import status
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs import lookup
from slurmddp.slurm.background import beside
from slurmddp.slurm.states import Phase
from slurmddp.submission import cancel, requeue

ASK_S: Final = 10.0
"""Sites throttle those who ask the controller more often."""
_ORDER: Final[Mapping[Phase, int]] = {"running": 0, "queued": 1, "unknown": 2}

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Asked:
    """What Slurm has said."""

    jobs: tuple[JobStatus, ...]
    at: float
    """In seconds since 1970."""


class Asker:
    """Asks every ten seconds, and when it is told to."""

    def __init__(self, words: Sequence[str], runs_dir: str, environ: Environ, wake: Callable[[], None]) -> None:
        """Take the words that name runs and jobs; `wake` is called when there is something new."""
        self._words, self._runs_dir, self._environ, self._wake = words, runs_dir, environ, wake
        self._now = threading.Event()
        self.last: Asked | None = None
        self.asking = False
        self.message = ""
        """What became of the last wish, or why there is no answer."""

    def start(self) -> None:
        """Begin, in a thread that ends with the program."""
        beside(self._work).add_done_callback(Future.result)

    def again(self) -> None:
        """Ask at once."""
        self._now.set()

    def cancel(self, job_id: str) -> None:
        """Cancel a job, beside the screen."""
        jobs = [job for job in (self.last.jobs if self.last else ()) if job.job_id == job_id]
        self._do(lambda: cancel.cancel(jobs, self._environ, self._say), f"job {job_id} is cancelled")

    def requeue(self, job_id: str) -> None:
        """Put a job back into the queue, beside the screen."""
        back = lambda: requeue.requeue(job_id, exclude=(), environ=self._environ, notice=self._say)  # noqa: E731
        self._do(back, f"job {job_id} goes back into the queue")

    def ask(self) -> None:
        """Ask once, here."""
        self.asking = True
        self._wake()
        meant = [status.current(one) for one in lookup.find(self._words, self._runs_dir)]
        targets = [setting for one in meant for setting in lookup.settings(one)]
        jobs = sorted(status.look(targets, self._environ), key=_place)
        self.last, self.asking = Asked(tuple(jobs), time.time()), False
        self._wake()

    def _work(self) -> None:
        while True:
            try:
                self.ask()
            except (SlurmddpError, OSError) as error:
                self.asking = False
                self._say(str(error))
            self._now.wait(ASK_S)
            self._now.clear()

    def _do(self, act: Callable[[], object], done: str) -> None:
        def over(wish: Future[object]) -> None:
            error = wish.exception()
            if error and not isinstance(error, SlurmddpError | OSError):
                raise error
            self._say(str(error) if error else done)
            self.again()

        beside(act).add_done_callback(over)

    def _say(self, message: str) -> None:
        self.message = message
        self._wake()


def _place(job: JobStatus) -> tuple[int, float]:
    """Return what to sort by: running, then waiting, then ended ones, the newest first."""
    moment = job.ended or job.started or job.submitted
    return _ORDER.get(job.phase, 3), -moment.timestamp() if moment else 0.0
