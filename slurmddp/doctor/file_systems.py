"""What kind of file system a path lies on, by the system's own list of mounts. Reads one file."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "cvmfs", "glusterfs", "gpfs", "lustre", "mmfs", "moosefs"),
        *("nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"),
    }
)
"""File systems of networks, by their names in mountinfo; those of fuse may be anything."""
_OWN: Final = frozenset({"overlay", "ramfs", "rootfs", "squashfs", "tmpfs"})
"""Those that another machine never sees."""


def type_of(path: Path) -> str:
    """Return the type of the file system that a path, there or not, lies on; empty when it cannot be told."""
    place = os.path.realpath(path)
    found = [(point, kind) for point, kind in _mounts() if _holds(point, place)]
    return max(found, key=lambda each: len(each[0]), default=("", ""))[1]


def is_shared(path: Path) -> bool:
    """Tell whether a path lies on a file system that other machines see, by the look of it."""
    return type_of(path) in _SHARED


def is_own(path: Path) -> bool:
    """Tell whether a path lies where no other machine can see it, by the look of it."""
    return type_of(path) in _OWN or os.path.realpath(path).startswith(("/tmp/", "/var/tmp/", "/dev/shm/"))  # noqa: S108


def parse(text: str) -> list[tuple[str, str]]:
    """Return mount point and type of each line of mountinfo (proc(5)); a later one hides an earlier."""
    found = {}
    for line in text.splitlines():
        fields, dash, rest = line.partition(" - ")
        if dash and len(fields.split(" ")) > _POINT:
            found[_unescaped(fields.split(" ")[_POINT])] = rest.split(" ")[0]
    return list(found.items())


_POINT: Final = 4


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


@cache
def _mounts() -> list[tuple[str, str]]:
    try:
        return parse(MOUNTS.read_text(errors="surrogateescape"))
    except OSError:
        return []


def _holds(point: str, place: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")
