"""Which attempt may write to a run's folder: the file `owner` holds one line, `<cluster> <job> <attempt>`.

Ownership only moves to a later attempt of the same job, or to another job when the caller knows that the holder has
ended. Standard library only.
"""

from __future__ import annotations
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp import variables
from slurmddp.errors import FencedError, UsageError
from slurmddp.runs.files import create_exclusively, read_or_empty
from slurmddp.runs.layout import RunDir

TRIES: Final = 100
"""A try fails only while another process takes the file, which is a matter of milliseconds."""
PAUSE_S: Final = 0.05
"""Seconds between two tries."""

DescribeHolder = Callable[[str], str]
"""Takes the line of a holder and returns why it keeps the file; empty if it has ended."""

HERE: Final = f"local:{os.uname().nodename}"
"""What the owner file names as the cluster of a run on this machine."""


class Claim(NamedTuple):
    """An attempt that owns a run, or asks to own it."""

    cluster: str
    """Two clusters on one disk use the same job ids. `local:<host>` for a run without Slurm."""
    job: str
    attempt: str

    @classmethod
    def parse(cls, line: str) -> Claim | None:
        """Return the claim of a line; None when it has no job."""
        words = [*line.split(), "", "", ""]
        return cls(*words[:3]) if words[1] else None

    def __str__(self) -> str:
        """Return the line."""
        return f"{self.cluster} {self.job} {self.attempt}"

    @property
    def is_running_here(self) -> bool:
        """Whether this is a run on this machine that has not ended; its id ends in the number of its process."""
        process = self.job.rpartition("-")[2]
        return self.cluster == HERE and process.isdecimal() and Path("/proc", process).exists()


def attempt_order(attempt: str) -> list[int]:
    """Return the numbers by which the attempts of one job are compared; -1 for what is no count of starts."""
    return [int(part) if re.fullmatch(r"\d{1,9}", part) else -1 for part in attempt.split(".")]


def is_running_here(owner: Path, job_id: str) -> bool:
    """Return whether a run on this machine goes on, by the run's owner file."""
    holder = Claim.parse(read_or_empty(owner).decode(errors="replace"))
    return holder is not None and holder.job == job_id and holder.is_running_here


class HeldError(Exception):
    """Another process holds the file, for the reason that the message gives."""


class Ownership:
    """The owner file of a run, as one attempt uses it."""

    def __init__(self, path: Path, line: str) -> None:
        self.path = path
        self.line = line.strip()

    def check(self) -> None:
        """Return if this attempt owns the run.

        Raises FencedError when the file holds another line or is missing; OSError when it cannot be read.
        """
        found = _read_line(self.path)
        if found != self.line:
            raise FencedError(
                f"this attempt ({self.line}) does not own the run any more: {self.path} names {found or 'no attempt'}; "
                "it writes nothing from now on"
            )

    def release(self) -> None:
        """Remove the file if it is still this attempt's."""
        with suppress(OSError):
            if _read_line(self.path) == self.line:
                self.path.unlink()


def ownership_of(path: Path, environ: Mapping[str, str]) -> Ownership | None:
    """Return what SLURMDDP_OWNER says of the run whose owner file is `path`; None where it is unset."""
    line = environ.get(variables.OWNER)
    return Ownership(path, line) if line else None


def is_gone(host: str, pid: str) -> bool:
    """Return whether a process of this machine has ended; of another machine that is not known."""
    return host == os.uname().nodename and pid.isdecimal() and not Path("/proc", pid).exists()


@contextmanager
def hold_submission(run: RunDir) -> Iterator[float | None]:
    """Hold the run while a job is submitted for it, against a second submission at the same time.

    Yields when a submission began that held the run and was killed, in seconds since 1970; None without one. Raises
    UsageError when another process, here or on another machine, holds it.
    """
    killed = None
    with suppress(FileNotFoundError):
        killed = run.claim.stat().st_mtime

    def describe_holder(line: str) -> str:
        host, _, pid = line.partition(" ")
        return "" if is_gone(host, pid) else f"run {run.path.name} is being submitted by process {pid} on {host}"

    try:
        take_file(run.claim, f"{os.uname().nodename} {os.getpid()}", describe_holder)
    except HeldError as error:
        raise UsageError(f"{error}; wait for it, or remove {run.claim} if that process is gone") from error
    try:
        yield killed
    finally:
        run.claim.unlink(missing_ok=True)


def take_file(path: Path, line: str, describe_holder: DescribeHolder) -> None:
    """Make the file hold `line`, unless another process holds it that has not ended.

    Only who holds `<path>.next` may replace the file, and it does so by renaming that one. Of several processes that
    replace the same holder at once, one succeeds; what a process leaves that was killed meanwhile is taken over.
    link(2) and rename(2) are atomic on network file systems too.

    Raises HeldError when the holder keeps the file; OSError when the folder cannot be written.
    """
    for _ in range(TRIES):
        holder = _read_line(path)
        if reason := describe_holder(holder) if holder else "":
            raise HeldError(reason)
        _replace_once(path, holder, line, describe_holder)
        if _read_line(path) == line:
            return
        time.sleep(PAUSE_S)
    names = f"{path} names {_read_line(path) or 'no attempt'}, not {line}, after {TRIES} tries"
    following = _following(path)
    raise HeldError(f"{names}; {following} names {_read_line(following) or 'no attempt'}: remove it if that has ended")


def _replace_once(path: Path, holder: str, line: str, describe_holder: DescribeHolder) -> None:
    """Replace the file if it still names `holder` and no other process replaces it."""
    following = _following(path)
    if not create_exclusively(following, f"{line}\n"):
        killed = _read_line(following)
        if not killed or describe_holder(killed):
            return
        _replace_once(following, killed, line, describe_holder)
    if _read_line(following) != line:
        return
    with suppress(FileNotFoundError):
        if _read_line(path) == holder:
            following.rename(path)
        else:
            following.unlink()


def _following(path: Path) -> Path:
    """The file that a process holds while it replaces `path`."""
    return path.with_name(f"{path.name}.next")


def _read_line(path: Path) -> str:
    """Return the line of a file; empty without one."""
    with suppress(FileNotFoundError):
        return path.read_text(errors="replace").strip()
    return ""
