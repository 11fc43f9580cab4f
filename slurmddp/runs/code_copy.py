"""The copy of a job's code in its run's folder (`--snapshot`): its digest, and whether it is what was submitted."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.runs.files import sha256_of
from slurmddp.trust import explain_foreign

LISTING: Final = ".slurmddp-files"
"""The file of a copy with the path of each of its entries: a program may write other files beside them."""


class Entry(NamedTuple):
    """A file or a symbolic link of the code."""

    path: str
    """Relative to the top of the code."""
    content: str
    """The sha256 of a file in hex; the target of a link."""
    is_link: bool = False
    executable: bool = False

    @classmethod
    def read(cls, top: Path, path: str) -> "Entry":
        """Return the entry of a file or link. Raises OSError."""
        place = top / path
        if place.is_symlink():
            return cls(path, str(place.readlink()), is_link=True)
        with place.open("rb") as file:
            return cls(path, sha256_of(file), executable=bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR))

    def is_in(self, top: Path) -> bool:
        """Return whether a folder has this entry, unchanged."""
        with suppress(OSError):
            return Entry.read(top, self.path) == self
        return False


def digest_of(entries: Iterable[Entry]) -> str:
    """Return the name of the copy of these entries, which are in the order of their paths."""
    import hashlib  # noqa: PLC0415 few jobs have a copy, and each supervisor would pay for it

    whole = hashlib.sha256()
    for entry in entries:
        kind = "l" if entry.is_link else "x" if entry.executable else "f"
        whole.update(os.fsencode(f"{kind}\0{entry.path}\0{entry.content}\0"))
    return whole.hexdigest()[:16]  # 64 bits are enough for the copies of one run


def explain_changed(copy: Path) -> str:
    """Return why a copy is not the code of its digest, or is not this user's alone; empty if it is. Raises OSError."""
    if why := explain_foreign(copy, below=True):
        return why
    with suppress(FileNotFoundError):  # an entry is missing, or the list of them
        paths = filter(None, os.fsdecode((copy / LISTING).read_bytes()).split("\0"))
        if digest_of(Entry.read(copy, path) for path in paths) == copy.name:
            return ""
    return f"{copy} is not the code that was submitted"
