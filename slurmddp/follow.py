"""Waits for a job, and shows what it prints meanwhile. Reads the run's files; asks Slurm every ten seconds."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slurmddp import slurm
from slurmddp.cluster.pending import warning
from slurmddp.errors import ClusterError
from slurmddp.outcome import DONE
from slurmddp.rundir import RunDir

ASK_S: Final = 10.0
"""Sites throttle those who ask the controller more often."""
SOON_S: Final = 1.0
"""What the batch script says announces something; then asking again this soon is worth it, for a while."""
LOOK_S: Final = 0.3
"""How often the files are looked at."""
READ_BYTES: Final = 2**20
"""So much of a file is read in one look."""
LINE_BYTES: Final = 2**16
"""A longer line is passed on without waiting for its end."""
_STIR_S: Final = 5.0
_SOON_LIMIT_S: Final = 30.0
_BLIND_LIMIT: Final = 30
"""So many unanswered questions in a row, five minutes of them, end the wait."""
_UNKNOWN_LIMIT: Final = 3
"""So many answers in a row that know nothing of the job end it too."""

_LAST_WORDS = re.compile(r" slurmddp: job \S+, attempt \S+, ended with status (\d+): ")
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

Show = Callable[[str], None]


def wait(
    run: RunDir, job_id: str, environ: Mapping[str, str], *, show: Show | None = None, notice: Callable[[str], None]
) -> slurm.Job:
    """Return the job when it has ended; `show` gets what rank 0 and the batch script print, `notice` the states.

    Raises ClusterError when the controller has not answered for five minutes, or answers that it does not know the
    job, of which no file tells the end either.
    """
    output = Output(run, job_id, ranks=show is not None)
    told, unknown = "", 0
    lines: list[str] = []
    while True:
        job = _ask(job_id, environ)
        unknown = unknown + 1 if job.state == "UNKNOWN" else 0
        over = job.ended or (unknown and output.status is not None) or unknown == _UNKNOWN_LIMIT
        if over:
            _pass([*lines, *output.rest()], show)
        if told != (told := _told(job)):
            notice(f"job {job_id} is {told}")
            if job.phase == "queued" and (line := warning(job.reason, job.job_id)):
                notice(line)
        if over:
            return job if job.ended else _from_files(output)
        _pass(lines, show)
        lines = _look(output, show, queued=job.phase == "queued")


def _told(job: slurm.Job) -> str:
    waits_for = job.reason if job.phase == "queued" and job.reason != "None" else ""
    return f"{job.state} ({waits_for})" if waits_for else job.state


def _look(output: "Output", show: Show | None, *, queued: bool) -> list[str]:
    """Pass on new lines until it is time to ask Slurm again.

    Returns the lines that are to follow its answer: those of a job that has just begun.
    """
    asked_at = time.monotonic()
    held: list[str] = []
    while True:
        held += output.new()
        if not queued:
            _pass(held, show)
            held = []
        patience_s = SOON_S if held or output.stirs else ASK_S
        if time.monotonic() >= asked_at + patience_s:
            return held
        time.sleep(min(LOOK_S, patience_s))


def _pass(lines: Iterable[str], show: Show | None) -> None:
    for line in lines:
        if show:
            show(line)


def _ask(job_id: str, environ: Mapping[str, str]) -> slurm.Job:
    for _ in range(_BLIND_LIMIT):
        try:
            return slurm.job(job_id, environ)
        except ClusterError as error:
            lost = error
            time.sleep(ASK_S)
    raise lost


def _from_files(output: "Output") -> slurm.Job:
    """The controller has forgotten the job; the batch script's last words have not."""
    if output.status is None:
        raise ClusterError(
            f"Slurm no longer knows job {output.job_id}, and its script left no last word; "
            f"its output is in {output.run.logs}"
        )
    return slurm.Job(output.job_id, "COMPLETED" if output.status == DONE else "FAILED")


@dataclass
class Output:
    """The growing output of one job: the batch script's file, and rank 0's of each attempt."""

    run: RunDir
    job_id: str
    ranks: bool = True
    """Whether rank 0's output is wanted."""
    status: int | None = None
    """What the batch script said at its end; None while it has not."""
    _read: dict[Path, int] = field(default_factory=dict)
    _ended_at: float = float("-inf")
    _heard_at: float = float("-inf")
    _stirred_at: float = float("-inf")

    def new(self) -> Iterator[str]:
        """Yield the whole lines that were added since the last call, as far as one look reads."""
        for attempt in self.run.attempts(self.job_id) if self.ranks else ():
            yield from self._lines(self.run.rank_log(self.job_id, attempt, 0))
        for line in self._lines(self.run.batch_log(self.job_id)):
            self._note(line)
            yield line

    def rest(self) -> Iterator[str]:
        """Yield all whole lines up to the files' ends."""
        while lines := list(self.new()):
            yield from lines

    @property
    def stirs(self) -> bool:
        """Whether the batch script has just said something that Slurm may soon know more of.

        Steady talk announces nothing: after half a minute it no longer counts.
        """
        now = time.monotonic()
        spoke = now - self._heard_at < _STIR_S and now - self._stirred_at < _SOON_LIMIT_S
        return spoke or now - self._ended_at < _SOON_LIMIT_S

    def _note(self, line: str) -> None:
        now = time.monotonic()
        if now - self._heard_at > _STIR_S:
            self._stirred_at = now
        self._heard_at = now
        if found := _LAST_WORDS.search(line):
            self.status, self._ended_at = int(found[1]), now

    def _lines(self, path: Path) -> list[str]:
        start = self._read.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(start)
                text = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        length = _whole(text)
        self._read[path] = start + length
        return [_printable(line) for line in text[:length].splitlines()]


def _whole(text: bytes) -> int:
    r"""Return the length of the whole lines in it; a last `\r` may be the half of a line's end."""
    ends = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
    return ends or (len(text) if len(text) >= LINE_BYTES else 0)


def _printable(line: bytes) -> str:
    """Return a line that can do nothing to a terminal: no colours, and a mark for what cannot be printed."""
    text = _ESCAPE.sub("", line.decode("utf-8", "replace"))
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)
