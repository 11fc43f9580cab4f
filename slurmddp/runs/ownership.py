"""Which attempt may write to a run's folder: the file `owner` holds one line, `<cluster> <job> <attempt>`.

The file is created exclusively (link(2), which also holds on NFS) and ownership only moves up: to a later attempt of
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
"""Each try that fails means that another process has taken the file in that moment."""


class Claim(NamedTuple):
    """An attempt that owns a run, or wants to."""

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

    def is_later_than(self, other: "Claim") -> bool:
        """Tell whether this is a later attempt than another of the same job, or the same one."""
        return attempt_order(self.attempt) >= attempt_order(other.attempt)


def attempt_order(attempt: str) -> list[int]:
    """Return what attempts of one job are compared by: a later one has more."""
    return [int(part) if part.isdecimal() else -1 for part in attempt.split(".")]


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
                f"this attempt ({self.line}) does not own the run any more: {self.path} names {found or 'nobody'}; "
                "it writes nothing from now on"
            )

    def take(self, check_replaceable: Callable[[str], None]) -> None:
        """Own the run. `check_replaceable` raises for the line of a holder that must keep it.

        Raises what it raises; HeldError when others were quicker every time; OSError when the folder cannot be written.
        """
        for _ in range(_TRIES):
            if create_exclusively(self.path, f"{self.line}\n"):
                return
            with suppress(FileNotFoundError):
                written = self.path.read_text(errors="replace")
                check_replaceable(written.strip())
                take_away(self.path, written)
        raise HeldError(f"{self.path} names {self.holder or 'nobody'}, not {self.line}, after {_TRIES} tries")

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
    """Create a file that must not be there yet, in one step that also a network file system keeps."""
    import tempfile  # noqa: PLC0415 - needed only to write, and every start would pay for it

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.write(descriptor, content.encode())
        os.close(descriptor)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def take_away(path: Path, content: str) -> None:
    """Remove a file whose writer is gone: move it, then compare; if another process was quicker, put theirs back.

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
