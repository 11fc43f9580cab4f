"""Which attempt may write to a run's folder: the file `owner` holds one line, `<cluster> <job> <attempt>`.

The file is created exclusively with link(2), which is reliable on NFS too. Ownership only moves to a later attempt of
the same job, or to another job when the caller knows that the holder has ended. Standard library only.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from slurmddp import variables
from slurmddp.errors import FencedError

_TRIES: Final = 20
"""A try fails only when another process has taken the file at the same moment."""


HERE: Final = f"local:{os.uname().nodename}"
"""What the owner file names as the cluster of a run on this machine."""


class Claim(NamedTuple):
    """An attempt that owns a run, or asks to own it."""

    cluster: str
    """Two clusters on one disk use the same job ids. `local:<host>` for a run without Slurm."""
    job: str
    attempt: str

    @classmethod
    def parse(cls, line: str) -> Self | None:
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

    def is_later_than(self, other: "Claim") -> bool:
        """Return whether this is the same attempt as another of the job, or a later one."""
        return attempt_order(self.attempt) >= attempt_order(other.attempt)


def attempt_order(attempt: str) -> list[int]:
    """Return the numbers by which the attempts of one job are compared."""
    return [int(part) if part.isdecimal() else -1 for part in attempt.split(".")]


def is_running_here(owner: Path, job_id: str) -> bool:
    """Return whether a run on this machine goes on, by the run's owner file."""
    with suppress(OSError):
        holder = Claim.parse(owner.read_text(errors="replace"))
        return holder is not None and holder.job == job_id and holder.is_running_here
    return False


class HeldError(Exception):
    """Another attempt owns the run and has not ended."""


class Ownership:
    """The owner file of a run, as one attempt uses it."""

    def __init__(self, path: Path, line: str) -> None:
        self.path = path
        self.line = line.strip()

    @property
    def holder(self) -> str:
        """The line of the attempt that owns the run now; empty without one."""
        with suppress(FileNotFoundError):
            return self.path.read_text(errors="replace").strip()
        return ""

    def check(self) -> None:
        """Return if this attempt owns the run.

        Raises FencedError when the file holds another line or is missing; OSError when it cannot be read.
        """
        found = self.holder
        if found != self.line:
            raise FencedError(
                f"this attempt ({self.line}) does not own the run any more: {self.path} names {found or 'no attempt'}; "
                "it writes nothing from now on"
            )

    def take(self, check_replaceable: Callable[[str], None]) -> None:
        """Take the ownership of the run. `check_replaceable` raises for the line of a holder that keeps it.

        Raises that error; HeldError when other processes were quicker each time; OSError when the folder cannot be
        written.
        """
        for _ in range(_TRIES):
            if create_exclusively(self.path, f"{self.line}\n"):
                return
            with suppress(FileNotFoundError):
                written = self.path.read_text(errors="replace")
                check_replaceable(written.strip())
                remove_stale_file(self.path, written)
        raise HeldError(f"{self.path} names {self.holder or 'no attempt'}, not {self.line}, after {_TRIES} tries")

    def release(self) -> None:
        """Remove the file if it is still this attempt's."""
        with suppress(OSError):
            if self.holder == self.line:
                self.path.unlink()


def ownership_of(path: Path, environ: Mapping[str, str]) -> Ownership | None:
    """Return what SLURMDDP_OWNER says of the run whose owner file is `path`; None where it is unset."""
    line = environ.get(variables.OWNER)
    return Ownership(path, line) if line else None


def create_exclusively(path: Path, content: str) -> bool:
    """Create a file; return False if it exists. The step is atomic on network file systems too."""
    import tempfile  # noqa: PLC0415 - needed only to write, and every start would pay for it

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.write(descriptor, content.encode())
        os.close(descriptor)
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        error.filename = str(path)  # not the temporary file, and after a failed write none
        raise
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def remove_stale_file(path: Path, content: str) -> None:
    """Remove a file whose writer has ended: move it, compare it, and put it back if another process replaced it.

    Raises FileNotFoundError when there is none.
    """
    aside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    path.rename(aside)
    try:
        if aside.read_text(errors="replace") != content:
            with suppress(FileExistsError):
                os.link(aside, path)
    finally:
        aside.unlink()
