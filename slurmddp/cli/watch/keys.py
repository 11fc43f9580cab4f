"""The state of `slurmddp watch`: keys change it, `view` returns it. Reads the chosen job's files; no terminal."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 a dict below is annotated with it
from typing import Final

from slurmddp.cli.watch.poller import Poller
from slurmddp.cli.watch.run_metrics import RunMetrics
from slurmddp.cli.watch.view import View
from slurmddp.errors import UsageError
from slurmddp.monitoring.logs.merge import Selection, lines
from slurmddp.monitoring.status import JobStatus
from slurmddp.monitoring.status.run_progress import read_progress
from slurmddp.text import clean_line

MESSAGE_S: Final = 8.0
"""Seconds for which a message is shown instead of the keys."""
_PAGE_LINES: Final = 10
_MOST_BACK: Final = 10_000


@dataclass(frozen=True)
class _Request:
    """A request that waits for confirmation."""

    question: str
    action: Callable[[str], None]
    job_id: str


class Session:
    """The state of the screen: chosen job, page, rank, message, request to confirm."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._view = View(now=0.0)
        self._job_id = ""
        self._shown_message = ("", 0.0)
        self._request: _Request | None = None
        self._metrics: dict[Path, RunMetrics] = {}
        self.over = False
        """Whether the user has quit."""

    def view(self, height: int) -> View:
        """Return what a screen of `height` lines shows now."""
        last = self._poller.last
        jobs = last.jobs if last else ()
        self._job_id = self._job_id or (jobs[0].job_id if jobs else "")
        chosen = next((number for number, job in enumerate(jobs) if job.job_id == self._job_id), 0)
        now = time.time()
        view = replace(
            self._view,
            now=now,
            jobs=jobs,
            chosen=chosen,
            asked=last.time if last else None,
            asking=self._poller.asking,
            question=self._request.question if self._request else "",
            message=self._message(now),
        )
        return self._add_files(view, height) if view.job else view

    def _message(self, now: float) -> str:
        """Return the message, until it has been shown for some seconds."""
        text, since = self._shown_message
        if text != self._poller.message:
            self._shown_message = (self._poller.message, now)
            return self._poller.message
        return text if now - since < MESSAGE_S else ""

    def _add_files(self, view: View, height: int) -> View:
        """Add progress, events and output from the chosen job's files, which are newer than Slurm's answer."""
        job = view.jobs[view.chosen]
        if job.run is None:
            return view
        metrics = self._metrics.setdefault(job.run.path, RunMetrics(job.run))
        metrics.read()
        history = metrics.job_history(job.job_id)
        now = read_progress(job.run, history, job.job_id, running=job.phase == "running", now=view.now)
        jobs = (*view.jobs[: view.chosen], replace(job, progress=now), *view.jobs[view.chosen + 1 :])
        return replace(
            view,
            jobs=jobs,
            loss=metrics.curve("loss"),
            rate=metrics.curve("samples_per_s"),
            events=tuple(event for event in history.events if event.kind != "metrics"),
            output=_output(job, view.rank, height + view.back)[: -view.back or None],
        )

    def press(self, key: str) -> None:
        """Carry out the action of a key."""
        if self._request:
            self._answer(key)
            return
        self._poller.message = ""
        actions = {**self._keys(), **(self._output_keys() if self._view.page == "output" else {})}
        if key in actions:
            actions[key]()

    def _answer(self, key: str) -> None:
        request, self._request = self._request, None
        if request and key in ("y", "Y"):
            request.action(request.job_id)
        else:
            self._poller.message = "not confirmed; nothing was done"

    def _keys(self) -> Mapping[str, Callable[[], None]]:
        return {
            "q": self._quit,
            "up": lambda: self._choose(-1),
            "k": lambda: self._choose(-1),
            "down": lambda: self._choose(1),
            "j": lambda: self._choose(1),
            "left": lambda: self._change_rank(-1),
            "right": lambda: self._change_rank(1),
            "l": lambda: self._toggle_page("output"),
            "enter": lambda: self._toggle_page("output"),
            "h": lambda: self._toggle_page("help"),
            "?": lambda: self._toggle_page("help"),
            "escape": lambda: self._toggle_page("jobs"),
            "s": self._poller.refresh,
            "c": lambda: self._confirm("cancel", self._poller.cancel),
            "r": lambda: self._confirm("requeue", self._poller.requeue),
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

    def _quit(self) -> None:
        self.over = True

    def _choose(self, by: int) -> None:
        jobs = self._poller.last.jobs if self._poller.last else ()
        ids = [job.job_id for job in jobs]
        if ids:
            at = ids.index(self._job_id) if self._job_id in ids else 0
            self._job_id = ids[max(0, min(len(ids) - 1, at + by))]
            self._view = replace(self._view, rank=0, back=0)

    def _change_rank(self, by: int) -> None:
        self._view = replace(self._view, rank=max(0, self._view.rank + by), back=0)

    def _scroll(self, by: int) -> None:
        self._view = replace(self._view, back=max(0, min(_MOST_BACK, self._view.back + by)))

    def _toggle_page(self, page: str) -> None:
        self._view = replace(self._view, page="jobs" if self._view.page == page else page, back=0)  # type: ignore[arg-type]  # one of Page's

    def _confirm(self, verb: str, action: Callable[[str], None]) -> None:
        job = self.view(0).job
        if job is None:
            return
        if job.phase not in ("queued", "running"):
            self._poller.message = f"job {job.job_id} is {job.state}: there is nothing to {verb}"
            return
        self._request = _Request(f"{verb} job {job.job_id} ({job.name})?", action, job.job_id)


def _output(job: JobStatus, rank: int, count: int) -> tuple[str, ...]:
    """Return the last lines of a rank and the batch script."""
    if job.run is None or not count:
        return ()
    wanted = Selection(run=job.run, job_id=job.job_id, ranks=frozenset({rank}), hosts=False)
    try:
        return tuple(clean_line(line.text) for line in lines(wanted, count))
    except UsageError as error:
        return (str(error),)
