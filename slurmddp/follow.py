"""Waits for a job, and shows what it prints meanwhile. Reads the run's files; asks Slurm every ten seconds."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slurmddp import slurm
from slurmddp.errors import ClusterError
from slurmddp.outcome import DONE
from slurmddp.rundir import RunDir

ASK_S: Final = 10.0
"""Sites throttle those who ask the controller more often."""
SOON_S: Final = 1.0
"""The batch script's last line announces the end; then asking again this soon is worth it, for a while."""
LOOK_S: Final = 0.3
"""How often the files are looked at."""
_SOON_LIMIT_S: Final = 30.0
_BLIND_LIMIT: Final = 30
"""So many unanswered questions in a row, five minutes of them, end the wait."""

_LAST_WORDS = re.compile(rb" slurmddp: job \S+, attempt \S+, ended with status (\d+): ")


def wait(
    run: RunDir,
    job_id: str,
    environ: Mapping[str, str],
    *,
    show: Callable[[str], None] | None = None,
    notice: Callable[[str], None],
) -> slurm.Job:
    """Return the job when it has ended; `show` gets what rank 0 and the batch script print, `notice` the states.

    Raises ClusterError when the controller has not answered for five minutes.
    """
    output = Output(run, job_id)
    told = ""
    while True:
        job = _ask(job_id, environ)
        if told != (told := _told(job)):
            notice(f"job {job_id} is {told}")
        if job.ended or (job.state == "UNKNOWN" and output.status is not None):
            for line in output.new():
                _pass(line, show)
            return job if job.ended else _from_files(job_id, output)
        _look_until(time.monotonic() + ASK_S, output, show)


def _told(job: slurm.Job) -> str:
    waits_for = job.reason if job.phase == "queued" and job.reason != "None" else ""
    return f"{job.state} ({waits_for})" if waits_for else job.state


def _look_until(deadline: float, output: "Output", show: Callable[[str], None] | None) -> None:
    """Pass on new lines until it is time to ask Slurm again."""
    while time.monotonic() < deadline:
        for line in output.new():
            _pass(line, show)
        if output.since_end_s < _SOON_LIMIT_S:
            deadline = min(deadline, time.monotonic() + SOON_S)
        time.sleep(LOOK_S)


def _pass(line: str, show: Callable[[str], None] | None) -> None:
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


def _from_files(job_id: str, output: "Output") -> slurm.Job:
    """The controller has forgotten the job; the batch script's last words have not."""
    return slurm.Job(job_id, "COMPLETED" if output.status == DONE else "FAILED")


@dataclass
class Output:
    """The growing output of one job: the batch script's file, and rank 0's of each attempt."""

    run: RunDir
    job_id: str
    status: int | None = None
    """What the batch script said at its end; None while it has not."""
    _read: dict[Path, int] = field(default_factory=dict)
    _ended_at: float = 0.0

    def new(self) -> Iterator[str]:
        """Yield the whole lines that were added since the last call."""
        for attempt in self.run.attempts(self.job_id):
            yield from self._lines(self.run.rank_log(self.job_id, attempt, 0))
        for line in self._lines(self.run.batch_log(self.job_id)):
            self._note_end(line)
            yield line

    @property
    def since_end_s(self) -> float:
        """Seconds since the batch script's last words were read; infinite while it has not spoken them."""
        return time.monotonic() - self._ended_at if self.status is not None else float("inf")

    def _note_end(self, line: str) -> None:
        found = _LAST_WORDS.search(line.encode("utf-8", "surrogateescape"))
        if found:
            self.status, self._ended_at = int(found[1]), time.monotonic()

    def _lines(self, path: Path) -> Iterator[str]:
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            yield line.decode("utf-8", "replace")
