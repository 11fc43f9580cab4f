"""Writes checkpoints in a thread of its own, one at a time: on rank 0, and on each that has pieces of its own."""

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Writer:
    """A thread that does one job at a time; what a job raises comes out at the next call."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._error: BaseException | None = None
        threading.Thread(target=self._work, name="checkpoints", daemon=True).start()

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return self._idle.is_set()

    def begin(self, job: Job) -> None:
        """Start a job when the one before has ended; raise what that one raised."""
        self.finish()
        self._idle.clear()
        self._jobs.put(job)

    def finish(self) -> None:
        """Return when nothing is being written; raise what the job raised."""
        self._idle.wait()
        self.check()

    def check(self) -> None:
        """Raise what a job raised, once."""
        error, self._error = self._error, None
        if error:
            raise error

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - it is raised again in the training's thread
                self._error = error
            finally:
                self._idle.set()
