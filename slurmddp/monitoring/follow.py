"""Waits for a job, and shows what it prints meanwhile. Reads the run's files; asks Slurm beside that, now and then."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmddp.errors import ClusterError
from slurmddp.exit_codes import DONE
from slurmddp.monitoring.logs.log_files import Hosts, Source, batch, of_attempt
from slurmddp.monitoring.logs.merge import Line
from slurmddp.monitoring.logs.tail import Growing, end_of_lines
from slurmddp.monitoring.status import run_progress
from slurmddp.runs.history import Event
from slurmddp.runs.layout import LOCAL, TAIL_BYTES, RunDir
from slurmddp.runs.supervision import job_end, last_end, parse_supervision
from slurmddp.slurm import queries
from slurmddp.slurm.background import beside
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.pending_reasons import warning
from slurmddp.text import clean

if TYPE_CHECKING:
    from concurrent.futures import Future

ASK_S: Final = 10.0
"""Sites throttle those who ask the controller more often."""
SOON_S: Final = 1.0
"""What the batch script says announces something; then asking again this soon is worth it, for a while."""
LOOK_S: Final = 0.3
"""How often the files are looked at."""
HELD_S: Final = 2.0
"""So long the first lines of a job wait for Slurm's word that it runs."""
_STIR_S: Final = 5.0
_SOON_LIMIT_S: Final = 30.0
BLIND_S: Final = 300.0
"""So long without an answer, however long each question takes, ends the wait."""
_UNKNOWN_LIMIT: Final = 3
"""So many answers in a row that know nothing of the job end it too."""

Show = Callable[[str], None]
Notice = Callable[[str], None]


def wait(run: RunDir, job_id: str, environ: Mapping[str, str], *, show: Show | None = None, notice: Notice) -> JobInfo:
    """Return the job when it has ended; `show` gets what rank 0 and the batch script print, `notice` the states.

    What is shown can do nothing to a terminal. Raises as `attend` does.
    """
    output = Output(run, job_id, ranks=frozenset({0} if show else ()))
    return attend(output, environ, show=lambda line: show(clean(line.text)) if show else None, notice=notice)


def attend(output: "Output", environ: Mapping[str, str], *, show: Callable[[Line], None], notice: Notice) -> JobInfo:
    """Return the job when it has ended; `show` gets what is printed meanwhile, `notice` the states.

    Raises ClusterError when the controller has not answered for five minutes or more, or does not know the
    job, of which no file tells the end either.
    """
    told, unknown = "", 0
    lines: list[Line] = []
    while True:
        job = _ask(output, environ, lines, show, notice)
        unknown = unknown + 1 if job.state == "UNKNOWN" else 0
        told_by_files = output.is_local or output.status is not None
        over = job.has_ended or (unknown and told_by_files) or unknown == _UNKNOWN_LIMIT
        if over:
            _pass([*lines, *output.rest()], show)
        if told != (told := _told(job)):
            notice(f"job {output.job_id} is {told}")
            if job.phase == "queued" and (line := warning(job.reason, job.job_id)):
                notice(line)
        if over:
            return job if job.has_ended else _from_files(output)
        _pass(lines, show)
        lines = _look(output, show, queued=job.phase == "queued")


def _told(job: JobInfo) -> str:
    waits_for = job.reason if job.phase == "queued" and job.reason != "None" else ""
    return f"{job.state} ({waits_for})" if waits_for else job.state


def _look(output: "Output", show: Callable[[Line], None], *, queued: bool, soon: bool = True) -> list[Line]:
    """Pass on new lines until it is time to ask Slurm again, `soon` where the batch script announces something.

    Returns the lines that are to follow its answer: those of a job that has just begun.
    """
    asked_at = time.monotonic()
    held: list[Line] = []
    while True:
        looked_at = time.monotonic()
        held += output.new()
        if not queued:
            _pass(held, show)
            held = []
        patience_s = SOON_S if output.is_local or (soon and (held or output.stirs)) else ASK_S
        if time.monotonic() >= asked_at + patience_s:
            return held
        took_s = time.monotonic() - looked_at  # many files, or slow ones: then at most a third of the time
        time.sleep(min(max(LOOK_S, 2 * took_s), patience_s))


def _pass(lines: Iterable[Line], show: Callable[[Line], None]) -> None:
    for line in lines:
        show(line)


def _ask(
    output: "Output", environ: Mapping[str, str], held: list[Line], show: Callable[[Line], None], notice: Notice
) -> JobInfo:
    """Ask until Slurm answers; meanwhile what was held back, and what is printed, is passed on."""
    asked_at, told = time.monotonic(), False
    while True:
        try:
            return _answer(beside(lambda: _job(output, environ)), output, held, show)
        except ClusterError as error:
            if time.monotonic() >= asked_at + BLIND_S:
                raise
            if not told:
                notice(f"Slurm does not tell how job {output.job_id} is: {error}; it is asked again")
            told = True
            _pass(held, show)
            held.clear()
            _look(output, show, queued=False, soon=False)


def _job(output: "Output", environ: Mapping[str, str]) -> JobInfo:
    if output.is_local:
        state = run_progress.local_ending(output.run, output.job_id, seen=None).state
        return JobInfo(job_id=output.job_id, state=state, source="files")
    return queries.job(output.job_id, environ)


def _answer(asked: "Future[JobInfo]", output: "Output", held: list[Line], show: Callable[[Line], None]) -> JobInfo:
    """Return what Slurm answers; once it takes its time, lines no longer wait for that."""
    from concurrent import futures  # noqa: PLC0415 it loads logging, and every start would pay for it

    deadline = time.monotonic() + HELD_S
    while not futures.wait([asked], timeout=LOOK_S).done:
        held += output.new()
        if time.monotonic() >= deadline:
            _pass(held, show)
            held.clear()
    return asked.result()


def _from_files(output: "Output") -> JobInfo:
    """Return how a job ended that the controller has forgotten."""
    if output.status is None:
        knows = "this machine no longer runs" if output.is_local else "Slurm no longer knows job"
        raise ClusterError(
            f"{knows} {output.job_id}, and its files do not tell how it ended; its output is in {output.run.logs}"
        )
    return JobInfo(job_id=output.job_id, state="COMPLETED" if output.status == DONE else "FAILED", source="files")


@dataclass
class Output:
    """The growing output of one job: the batch script's file, and those of some ranks in each attempt."""

    run: RunDir
    job_id: str
    ranks: frozenset[int] | None = frozenset({0})
    """Whose output is wanted; None for all, and for their launchers."""
    batch: bool = True
    """Whether the batch script's words are wanted; they are read in any case."""
    _events: Growing | None = None
    _supervision: list[Event] = field(default_factory=list)
    _files: dict[Path, Growing] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _hosts: dict[str, Hosts] = field(default_factory=dict)
    _ended_at: float = float("-inf")
    _heard_at: float = float("-inf")
    _stirred_at: float = float("-inf")

    def skip(self, attempts: Iterable[str]) -> dict[Path, int]:
        """Take what these attempts have printed so far as read, and all of earlier ones; return where that ends."""
        first = next(iter(attempts), None)
        known = self.run.attempts(self.job_id)
        self._done |= set(known[: known.index(first)] if first in known else ())
        for source in [*self._sources(), batch(self.run, self.job_id)]:
            self._file(source.path).at = end_of_lines(source.path)
        self._read_events()
        return {path: file.at for path, file in self._files.items()}

    def new(self, *, rest: bool = False) -> Iterator[Line]:
        """Yield the whole lines that were added since the last call, as far as one look reads.

        `rest` takes what a file ends with for a line, whole or not.
        """
        self._hosts = {attempt: hosts for attempt, hosts in self._hosts.items() if hosts.are_known}
        for source in self._sources():
            yield from self._lines(source, rest=rest)
        for line in self._lines(batch(self.run, self.job_id), rest=rest):
            self._note()
            if self.batch:
                yield line
        if self._read_events():
            self._ended_at = time.monotonic()

    def rest(self) -> Iterator[Line]:
        """Yield all lines up to the files' ends."""
        while lines := list(self.new(rest=True)):
            yield from lines

    @property
    def status(self) -> int | None:
        """How the job, or its last attempt, ended by its supervisor's events; None while it has not."""
        end = job_end(self.run, self.job_id, self._supervision)
        return end.status if end else None

    @property
    def is_local(self) -> bool:
        """Whether it is no job, but a run on this machine."""
        return self.job_id.startswith(LOCAL)

    @property
    def stirs(self) -> bool:
        """Whether the batch script has just said something that Slurm may soon know more of.

        Steady talk announces nothing: after half a minute it no longer counts.
        """
        now = time.monotonic()
        spoke = now - self._heard_at < _STIR_S and now - self._stirred_at < _SOON_LIMIT_S
        return spoke or now - self._ended_at < _SOON_LIMIT_S

    def _read_events(self) -> bool:
        """Read the events that were added since the last call, at first the newest; tell whether one is of an end."""
        self._events = file = self._events or Growing(self.run.events, _start_of_newest(self.run.events))
        found: list[Event] = []
        while file.has_more() and (lines := file.new()):
            found += parse_supervision(lines, self.job_id)
        self._supervision += found
        return last_end(found) is not None

    def _note(self) -> None:
        now = time.monotonic()
        if now - self._heard_at > _STIR_S:
            self._stirred_at = now
        self._heard_at = now

    def _sources(self) -> Iterator[Source]:
        """Yield the ranks' files of the attempts that may still grow: of a job's last two."""
        if self.ranks is not None and not self.ranks:
            return
        known = self.run.attempts(self.job_id)
        for attempt in known:
            if attempt not in self._done:
                yield from of_attempt(self.run, self.job_id, attempt, self.ranks, hosts=False)
        self._done |= set(known[:-2])

    def _lines(self, source: Source, *, rest: bool) -> Iterator[Line]:
        file = self._file(source.path)
        if not file.has_more():
            return
        attempt = source.attempt or next(reversed(self.run.attempts(self.job_id)), "")
        source = replace(source, host=self._host(source))
        now = time.time()
        for text in file.new(returns=True, rest=rest):
            yield Line(text, source, attempt, now, "seen")

    def _file(self, path: Path) -> Growing:
        return self._files.setdefault(path, Growing(path))

    def _host(self, source: Source) -> str:
        """Return where a rank runs; before all have met nobody knows, and each look looks for it again."""
        hosts = self._hosts.setdefault(source.attempt, Hosts(self.run, self.job_id, source.attempt))
        return hosts.of(source.kind, source.number)


def _start_of_newest(path: Path) -> int:
    with suppress(FileNotFoundError):
        return max(0, path.stat().st_size - TAIL_BYTES)
    return 0
