"""What a person does with `slurmddp watch`: keys in, a view out. Reads the chosen job's files; no terminal."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 a dict below is annotated with it
from typing import Final, Protocol

from slurmddp.cli.watch.gpus import of_job
from slurmddp.cli.watch.poller import Asked
from slurmddp.cli.watch.run_metrics import Record, told
from slurmddp.cli.watch.view import View
from slurmddp.errors import UsageError
from slurmddp.monitoring.logs.merge import Selection, lines
from slurmddp.monitoring.status import JobStatus
from slurmddp.monitoring.status.run_progress import progress
from slurmddp.text import clean

MESSAGE_S: Final = 8.0
"""So long a message stands in place of the keys."""
_PAGE_LINES: Final = 10
_MOST_BACK: Final = 10_000


class Slurm(Protocol):
    """What a session wants of Slurm; `watch_asker.Asker` gives it."""

    last: Asked | None
    asking: bool
    message: str

    def again(self) -> None:
        """Ask at once."""

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""

    def requeue(self, job_id: str) -> None:
        """Put a job back into the queue."""


@dataclass(frozen=True)
class _Wish:
    question: str
    act: Callable[[str], None]
    job_id: str


class Session:
    """A person at the screen."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._view = View(now=0.0)
        self._job_id = ""
        self._said = ("", 0.0)
        self._wish: _Wish | None = None
        self._records: dict[Path, Record] = {}
        self.over = False
        """Whether the person wants to leave."""

    def view(self, height: int) -> View:
        """Return what there is to see now, on a screen of so many lines."""
        last = self._slurm.last
        jobs = last.jobs if last else ()
        self._job_id = self._job_id or (jobs[0].job_id if jobs else "")
        chosen = next((number for number, job in enumerate(jobs) if job.job_id == self._job_id), 0)
        now = time.time()
        view = replace(
            self._view,
            now=now,
            jobs=jobs,
            chosen=chosen,
            asked=last.at if last else None,
            asking=self._slurm.asking,
            question=self._wish.question if self._wish else "",
            message=self._message(now),
        )
        return self._with_files(view, height) if view.job else view

    def _message(self, now: float) -> str:
        """Return what is to be said, for a while."""
        said, since = self._said
        if said != self._slurm.message:
            self._said = (self._slurm.message, now)
            return self._slurm.message
        return said if now - since < MESSAGE_S else ""

    def _with_files(self, view: View, height: int) -> View:
        """Add what the chosen job's files tell, which are newer than Slurm's answer."""
        job = view.jobs[view.chosen]
        if job.run is None:
            return view
        record = self._records.setdefault(job.run.path, Record(job.run))
        record.read()
        history = record.of_job(job.job_id)
        now = progress(job.run, history, job.job_id, running=job.phase == "running", now=view.now)
        jobs = (*view.jobs[: view.chosen], replace(job, progress=now), *view.jobs[view.chosen + 1 :])
        return replace(
            view,
            jobs=jobs,
            loss=record.curve("loss"),
            rate=record.curve("samples_per_s"),
            events=told(history),
            output=_output(job, view.rank, height + view.back)[: -view.back or None],
            gpus=of_job(job),
        )

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        if self._wish:
            self._answer(key)
            return
        self._slurm.message = ""
        wants = {**self._keys(), **(self._output_keys() if self._view.page == "output" else {})}
        if key in wants:
            wants[key]()

    def _answer(self, key: str) -> None:
        wish, self._wish = self._wish, None
        if wish and key in ("y", "Y"):
            wish.act(wish.job_id)
        else:
            self._slurm.message = "nothing was done"

    def _keys(self) -> Mapping[str, Callable[[], None]]:
        return {
            "q": self._leave,
            "up": lambda: self._choose(-1),
            "k": lambda: self._choose(-1),
            "down": lambda: self._choose(1),
            "j": lambda: self._choose(1),
            "left": lambda: self._rank(-1),
            "right": lambda: self._rank(1),
            "l": lambda: self._page("output"),
            "enter": lambda: self._page("output"),
            "h": lambda: self._page("help"),
            "?": lambda: self._page("help"),
            "escape": lambda: self._page("jobs"),
            "s": self._slurm.again,
            "c": lambda: self._ask("cancel", self._slurm.cancel),
            "r": lambda: self._ask("requeue", self._slurm.requeue),
        }

    def _output_keys(self) -> Mapping[str, Callable[[], None]]:
        return {
            "up": lambda: self._scroll(1),
            "k": lambda: self._scroll(1),
            "down": lambda: self._scroll(-1),
            "j": lambda: self._scroll(-1),
            "page up": lambda: self._scroll(_PAGE_LINES),
            "page down": lambda: self._scroll(-_PAGE_LINES),
        }

    def _leave(self) -> None:
        self.over = True

    def _choose(self, by: int) -> None:
        jobs = self._slurm.last.jobs if self._slurm.last else ()
        ids = [job.job_id for job in jobs]
        if ids:
            at = ids.index(self._job_id) if self._job_id in ids else 0
            self._job_id = ids[max(0, min(len(ids) - 1, at + by))]
            self._view = replace(self._view, rank=0, back=0)

    def _rank(self, by: int) -> None:
        self._view = replace(self._view, rank=max(0, self._view.rank + by), back=0)

    def _scroll(self, by: int) -> None:
        self._view = replace(self._view, back=max(0, min(_MOST_BACK, self._view.back + by)))

    def _page(self, page: str) -> None:
        self._view = replace(self._view, page="jobs" if self._view.page == page else page, back=0)  # type: ignore[arg-type]  # one of Page's

    def _ask(self, what: str, act: Callable[[str], None]) -> None:
        job = self.view(0).job
        if job is None:
            return
        if job.phase not in ("queued", "running"):
            self._slurm.message = f"job {job.job_id} is {job.state}: there is nothing to {what}"
            return
        self._wish = _Wish(f"{what} job {job.job_id} ({job.name})?", act, job.job_id)


def _output(job: JobStatus, rank: int, count: int) -> tuple[str, ...]:
    """Return the last lines of a rank and of the batch script."""
    if job.run is None or not count:
        return ()
    wanted = Selection(run=job.run, job_id=job.job_id, ranks=frozenset({rank}), hosts=False)
    try:
        return tuple(clean(line.text) for line in lines(wanted, count))
    except UsageError as error:
        return (str(error),)
