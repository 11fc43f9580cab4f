"""Keeps copies of environments on the disk of this node; one task a node, started by `slurmddp.batch.stage`.

    python -m slurmddp.batch.unpack check|unpack FOLDER ARCHIVE CHECKSUM JOBS

Prints one line: `ready`, `missing`, or why there can be no copy. JOBS are the user's jobs in the queue, or `unknown`.
Copies change only under the lock of FOLDER. A copy is unpacked under another name, so one with its own name is whole.
"""

import fcntl
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

READY: Final = "ready"
MISSING: Final = "missing"
UNKNOWN: Final = "unknown"
KEPT: Final = 1
"""Copies that no job uses and that stay, beside the one that is asked for."""
_PART: Final = ".part-"
_USERS: Final = ".jobs"
"""The folder of a copy with an empty file for each job that has used it."""


class Node(NamedTuple):
    """The folder of the copies on this node, the archive, and the job that asks for its copy."""

    folder: Path
    archive: Path
    checksum: int
    job: str
    queued: frozenset[str] | None
    """The user's jobs in the queue; None if they are not known."""

    @property
    def copy(self) -> Path:
        """The unpacked environment."""
        return self.folder / self.archive.stem


def broadcast_path(folder: Path, job: str) -> Path:
    """Return where sbcast puts the archive for a job."""
    return folder / f".{job}.tar"


def main(words: list[str]) -> int:
    """Perform a step on this node and print its answer."""
    step, folder, archive, checksum, queued = words
    jobs = None if queued == UNKNOWN else frozenset(queued.split(","))
    node = Node(Path(folder), Path(archive), int(checksum), os.environ["SLURM_JOB_ID"], jobs)
    try:
        answer = {"check": check, "unpack": unpack}[step](node)
    except (OSError, ValueError) as error:
        answer = f"{os.uname().nodename}: {error}"
    sys.stdout.write(f"{answer}\n")
    return 0


def check(node: Node) -> str:
    """Make the folder, remove copies that no job uses, and say whether this copy is there. Raises OSError."""
    node.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = node.folder.lstat()
    if info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise PermissionError(f"{node.folder} is not yours alone")
    with _locked(node.folder):
        _remove_unused(node)
        if _is_used_now(node):
            return READY
    free, size = shutil.disk_usage(node.folder).free, node.archive.stat().st_size
    if free < 2 * size:
        raise OSError(f"{node.folder} has {free >> 20} MB free, and {2 * size >> 20} MB are needed")
    return MISSING


def unpack(node: Node) -> str:
    """Unpack the archive unless its copy is there. Raises OSError or ValueError, and then leaves nothing."""
    with _locked(node.folder):
        try:
            if not _is_used_now(node):
                _unpack(node)
                _is_used_now(node)
        finally:
            broadcast_path(node.folder, node.job).unlink(missing_ok=True)
    return READY


def _is_used_now(node: Node) -> bool:
    """Note the job as a user of the copy; return whether there is one."""
    if node.copy.is_dir():
        (node.copy / _USERS / node.job).touch()
        os.utime(node.copy / _USERS)
        return True
    return False


def _unpack(node: Node) -> None:
    part = Path(tempfile.mkdtemp(dir=node.folder, prefix=_PART))
    try:
        broadcast = broadcast_path(node.folder, node.job)
        _extract(broadcast if broadcast.exists() else node.archive, part, node.checksum)
        _move(part, node.copy)
        (part / _USERS).mkdir()
        part.rename(node.copy)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(archive: Path, part: Path, checksum: int) -> None:
    with archive.open("rb") as file:
        summed = _Summed(file)
        try:
            with tarfile.open(fileobj=summed, mode="r|") as tar:  # type: ignore[call-overload] # it needs only read()
                tar.extraction_filter = lambda member, _: member  # links may point to the outside, as in the original
                tar.extractall(part)  # noqa: S202 the archive is the user's own
        except tarfile.TarError as error:
            raise ValueError(f"{archive} is damaged: {error}") from error
        while summed.read(2**20):
            pass
    if summed.checksum != checksum:
        raise ValueError(f"{archive} is damaged")


class _Summed:
    """A file that is read, and the checksum of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.checksum = 0

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self.checksum = zlib.crc32(content, self.checksum)
        return content


def _move(part: Path, copy: Path) -> None:
    """Let the environment find its interpreter at its new place, and its scripts, too."""
    note = json.loads((part / "staged.json").read_text())
    if note["home"]:
        settings = part / "env" / "pyvenv.cfg"
        lines = settings.read_text().splitlines()
        home = f"home = {copy / note['home']}"
        settings.write_text("\n".join(home if line.startswith("home") else line for line in lines) + "\n")
    before, after = os.fsencode(f"{note['prefix']}/bin/"), os.fsencode(f"{copy}/env/bin/")
    for script in (part / "env" / "bin").iterdir():
        if not script.is_file() or script.is_symlink():
            continue
        with script.open("rb") as file:
            if file.read(2) != b"#!":
                continue
        words = script.read_bytes().split(b"\n", 2)  # the first two lines: pip's has two for a long path
        script.write_bytes(b"\n".join([*(line.replace(before, after) for line in words[:2]), *words[2:]]))


def _remove_unused(node: Node) -> None:
    """Remove what killed jobs have left, and copies without a job in the queue, all but the last used."""
    for part in node.folder.glob(f"{_PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    if node.queued is None:
        return
    for archive in node.folder.glob(".*.tar"):
        if archive.stem.removeprefix(".") not in node.queued:
            archive.unlink(missing_ok=True)
    copies = [users.parent for users in node.folder.glob(f"*/{_USERS}") if users.parent != node.copy]
    unused = [copy for copy in copies if node.queued.isdisjoint(job.name for job in (copy / _USERS).iterdir())]
    for copy in sorted(unused, key=lambda copy: (copy / _USERS).stat().st_mtime, reverse=True)[KEPT:]:
        dying = node.folder / f"{_PART}{copy.name}"
        copy.rename(dying)
        shutil.rmtree(dying, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder against the user's other jobs on this node; the kernel ends it with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
