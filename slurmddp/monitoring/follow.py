"""Waits for a job and shows its output meanwhile. Reads the run's files; asks Slurm in the background every 10 s."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slurmddp.background import run_in_background
from slurmddp.errors import ClusterError
from slurmddp.monitoring.logs.log_files import Hosts, Source, attempt_sources, batch_sources
from slurmddp.monitoring.logs.merge import Line
from slurmddp.monitoring.status import JobStatus, query_jobs
from slurmddp.outcome import Outcome
from slurmddp.runs.facts import last_end
from slurmddp.runs.history import read_newest
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import GrowingFile, end_of_lines, file_size
from slurmddp.runs.lookup import Target
from slurmddp.slurm.client import explain_silence, spread
from slurmddp.slurm.job_info import JobRef
from slurmddp.slurm.pending_reasons import explain, warning
from slurmddp.text import clean_line

ASK_S: Final = 10.0
"""Pause between two questions: sites throttle users who ask the controller more often."""
LONGEST_PAUSE_S: Final = 60.0
"""The pause while nothing changes: it grows by a tenth each time."""
SOON_S: Final = 1.0
"""Pause when lines are held back, or an attempt has just ended: the state of the job may have changed."""
READ_PAUSE_S: Final = 0.3
"""Pause between two reads of the files."""
HOLD_S: Final = 2.0
"""So long the first lines of a job wait for Slurm's answer that it runs."""
SILENCE_LIMIT_S: Final = 300.0
"""The wait ends with an error when Slurm has not answered for so long."""
_SOON_LIMIT_S: Final = 30.0
_UNKNOWN_LIMIT: Final = 3
"""The wait ends when so many answers in a row do not know the job."""

Say = Callable[[str], None]


def wait_for_job(
    run: RunDir, job_id: str, environ: Mapping[str, str], *, show: Say | None = None, notice: Say
) -> Outcome:
    """Return how the job ended; `show` gets the output of rank 0 and of the batch script, `notice` the states.

    Control characters are removed from what is shown. Raises as `Follower.follow` does.
    """
    output = Output(run, job_id, ranks=frozenset({0} if show else ()))
    return Follower(output, environ, lambda line: show(clean_line(line.text)) if show else None, notice).follow()


@dataclass
class Follower:
    """One wait for a job. Lines are held back until Slurm has answered: a state comes before the lines it explains."""

    output: "Output"
    environ: Mapping[str, str]
    show: Callable[[Line], None]
    notice: Say
    held: list[Line] = field(default_factory=list)
    state: str = ""
    """The state that was last told."""
    unchanged: int = 0
    """How many answers in a row have told the same."""

    def follow(self) -> Outcome:
        """Return how the job ended; until then, `show` gets its output and `notice` its states.

        Raises ClusterError when the controller has not answered for five minutes, and when it does not know the job and
        the files do not tell how it ended.
        """
        unknown = 0
        while True:
            job = self._ask()
            unknown = 0 if job.slurm or job.phase != "unknown" else unknown + 1
            is_gone = unknown == (1 if job.ref.is_local else _UNKNOWN_LIMIT)
            if job.outcome.final or is_gone:
                self.held += self.output.remaining_lines()
                self._show_held()
                if is_gone:
                    knows = "this machine no longer runs" if job.ref.is_local else "Slurm no longer knows job"
                    lost = f"{knows} {job.job_id}, and its files do not tell how it ended"
                    raise ClusterError(f"{lost}; its output is in {self.output.run.logs}")
                self._tell(job.state)
                return job.outcome
            is_queued = job.phase == "queued"
            # a reason to wait for ever comes with what to type
            why = warning(job.reason, job.job_id) or explain(job.reason).meaning
            self._tell(f"{job.state}: {why} ({job.reason})" if is_queued and job.reason else job.state)
            self._show_held()
            self._read_until_next_question(hold=is_queued)

    def _tell(self, state: str) -> None:
        """Tell a state, if it is a new one."""
        self.unchanged = self.unchanged + 1 if state == self.state else 0
        if not self.unchanged:
            self.state = state
            self.notice(f"job {self.output.job_id} is {state}")

    def _show_held(self) -> None:
        for line in self.held:
            self.show(line)
        self.held.clear()

    def _read_until_next_question(self, *, hold: bool, may_be_soon: bool = True) -> None:
        """Read new lines until it is time to ask Slurm again; `hold` them back, or show them at once."""
        asked_at = time.monotonic()
        while True:
            began = time.monotonic()
            self.held += self.output.new_lines()
            if not hold:
                self._show_held()
            is_local = JobRef.parse(self.output.job_id).is_local
            is_soon = is_local or (may_be_soon and (self.held or self.output.is_change_expected))
            pause_s = SOON_S if is_soon else spread(min(ASK_S * 1.1 ** min(self.unchanged, 100), LONGEST_PAUSE_S))
            if time.monotonic() >= asked_at + pause_s:
                return
            took_s = time.monotonic() - began  # many files, or slow ones: read for a third of the time at most
            time.sleep(min(max(READ_PAUSE_S, 2 * took_s), pause_s))

    def _ask(self) -> JobStatus:
        """Return the job as soon as Slurm answers; new lines are shown while it does not, the first after HOLD_S."""
        from concurrent import futures  # noqa: PLC0415 it loads logging, and every start would pay for it

        began, is_told = time.monotonic(), False
        while True:
            asked, asked_at = run_in_background(self._query), time.monotonic()
            while not futures.wait([asked], timeout=READ_PAUSE_S).done:
                self.held += self.output.new_lines()
                if time.monotonic() >= asked_at + HOLD_S:
                    self._show_held()
            try:
                return asked.result()
            except ClusterError as error:
                if time.monotonic() >= began + SILENCE_LIMIT_S:
                    raise
                if not is_told:
                    self.notice(
                        f"Slurm does not say in which state job {self.output.job_id} is: {error}; it is asked again"
                    )
                is_told = True
                self._read_until_next_question(hold=False, may_be_soon=False)

    def _query(self) -> JobStatus:
        *_, job = query_jobs([Target(self.output.run, (self.output.job_id,))], self.environ, brief=True)
        if job.silence and not job.outcome.final:
            raise ClusterError(explain_silence(job.silence))
        return job


@dataclass
class Output:
    """The growing output of one job: the batch script's file, and those of some ranks in each attempt."""

    run: RunDir
    job_id: str
    ranks: frozenset[int] | None = frozenset({0})
    """Ranks whose output is wanted; None for all ranks and their launchers."""
    batch: bool = True
    """Whether the batch script's lines are wanted; they are read in any case."""
    _events_bytes: int = 0
    _files: dict[Path, GrowingFile] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _hosts: dict[str, Hosts] = field(default_factory=dict)
    _ended_at: float = float("-inf")

    def skip_existing(self, attempts: Iterable[str]) -> dict[Path, int]:
        """Skip what these attempts have printed so far, and all earlier attempts; return where each file is then."""
        first = next(iter(attempts), None)
        known = self.run.attempts(self.job_id)
        self._done |= set(known[: known.index(first)] if first in known else ())
        for path in (source.path for source in [*self._sources(), *batch_sources(self.run, self.job_id)]):
            self._files[path] = GrowingFile(path, end_of_lines(path))
        self._read_events()
        return {path: file.at for path, file in self._files.items()}

    def new_lines(self, *, rest: bool = False) -> Iterator[Line]:
        """Yield the whole lines that were added since the last call, at most one block of each file.

        `rest` also yields the last line of a file when it has no end yet.
        """
        self._hosts = {attempt: hosts for attempt, hosts in self._hosts.items() if not hosts.are_missing}
        for source in self._sources():
            yield from self._lines(source, rest=rest)
        for source in batch_sources(self.run, self.job_id):
            yield from (line for line in self._lines(source, rest=rest) if self.batch)
        if self._read_events():
            self._ended_at = time.monotonic()

    def remaining_lines(self) -> Iterator[Line]:
        """Yield all lines up to the files' ends."""
        while lines := list(self.new_lines(rest=True)):
            yield from lines

    @property
    def is_change_expected(self) -> bool:
        """Whether an attempt has just ended, so that Slurm may soon have a new state."""
        return time.monotonic() - self._ended_at < _SOON_LIMIT_S

    def _read_events(self) -> bool:
        """Return whether there are new events since the last call, and the newest of the job is its end."""
        before, self._events_bytes = self._events_bytes, file_size(self.run.events)
        new = self._events_bytes != before
        return new and last_end(read_newest(self.run).of_job(self.job_id).events) is not None

    def _sources(self) -> Iterator[Source]:
        """Yield the ranks' files that may still grow: those of the job's last two attempts."""
        if self.ranks is not None and not self.ranks:
            return
        known = self.run.attempts(self.job_id)
        for attempt in known:
            if attempt not in self._done:
                hosts = self._hosts.setdefault(attempt, Hosts(self.run, self.job_id, attempt))
                yield from attempt_sources(self.run, self.job_id, attempt, self.ranks, hosts)
        self._done |= set(known[:-2])

    def _lines(self, source: Source, *, rest: bool) -> Iterator[Line]:
        file = self._files.setdefault(source.path, GrowingFile(source.path))
        if not file.has_more():
            return
        attempt = source.attempt or next(reversed(self.run.attempts(self.job_id)), "")
        now = time.time()
        for text in file.read_lines(returns=True, rest=rest):
            yield Line(text, source, attempt, now, "seen")
