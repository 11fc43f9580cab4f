"""Checkpoints on disk: whole or not there, newest first. Touches the disk; no processes, no communication.

step-000000100/     what was saved after 100 steps: files of torch.save
  manifest.json     written last: size and sha256 of each file, and a checksum over itself
.step-000000100.*   being written, or being deleted
broken-step-...     did not verify; never read and never deleted
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import torch

from slurmddp.errors import PeerError, RankError
from slurmddp.runs.ownership import Ownership

FORMAT = 1
MANIFEST = "manifest.json"
IDENTITY = "identity"
INDEX = "index.pt"
"""Where each rank's pieces of a divided state lie, and that state without them."""
_STEP = re.compile(r"step-([0-9]{9,})")
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO}
"""What opening or reading a file says when it, or what it held, is gone for good."""
_POLL_S = 0.1

Files = dict[str, dict[str, Any]]
"""Of each file, by name, `size` in bytes and `sha256`."""
Fill = Callable[[Path], Files]
"""Writes files that are new into a folder, durable on return."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint that verifies."""

    step: int
    """Steps taken before it was saved."""
    folder: Path
    digest: str
    """sha256 of the manifest, and so of all there is."""
    identity: str
    """The run that saved it."""
    note: Mapping[str, Any]
    """What its writer said of it."""
    files: Mapping[str, Mapping[str, Any]]
    """Of each file, `size` in bytes and `sha256`."""

    @property
    def size(self) -> int:
        """Bytes of all files, the manifest's not counted."""
        return sum(file["size"] for file in self.files.values())


class Store:
    """The checkpoints of one run in one folder. One process makes them; any may read.

    `owner` is asked before every commit and deletion; None where nobody fences. `say` is given a line for each
    thing that a user should know.
    """

    def __init__(
        self, folder: Path, *, identity: str, keep: int, owner: Ownership | None, say: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._keep = keep
        self._owner = owner
        self._say = say

    def write(self, step: int, parts: Mapping[str, Any], note: Mapping[str, Any]) -> str:
        """Save each part under its file name, durable on return, and return the checkpoint's digest.

        As `write_by`, with files of torch.save.
        """
        return self.write_by(step, lambda folder: save_parts(parts, folder), note)

    def write_by(self, step: int, fill: Fill, note: Mapping[str, Any]) -> str:
        """Let `fill` put the files into the folder it is given; durable on return, which is the checkpoint's digest.

        A checkpoint of that step that verifies is kept instead. Of those that verify, the newest `keep` stay.
        Raises FencedError when another attempt owns the run, OSError when the disk refuses (nothing is left
        behind then), RankError when that step is there and belongs to another run.
        """
        self._check_owner()
        self._folder.mkdir(parents=True, exist_ok=True)
        if not (self._folder / IDENTITY).exists():  # somebody has removed the folder
            _write_once(self._folder / IDENTITY, self._identity)
        self._remove_leftovers()
        folder = self._folder / f"step-{step:09d}"
        there = self._own(folder) if folder.exists() else None
        digest = there.digest if there else self._commit(folder, step, fill, note)
        self._prune()
        return digest

    def newest(self) -> Found | None:
        """Return the newest checkpoint of which every byte verifies; None when there is none.

        Broken ones on the way are set aside. Raises RankError when the newest belongs to another run, FencedError
        when one is to be set aside and another attempt owns the run.
        """
        candidates = (self._own(folder) for folder in self._steps())
        return next((found for found in candidates if found), None)

    def load(self, found: Found, name: str) -> Any:
        """Return what was saved as `name`, its tensors in host memory."""
        # Not mapped: an optimizer keeps the tensors it is given, and the file is deleted one day.
        return torch.load(found.folder / name, map_location="cpu", weights_only=True)

    def await_found(self, step: int, digest: str, limit_s: float) -> Found:
        """Return the checkpoint of that step and digest as soon as this node sees it.

        Raises PeerError when it does not within `limit_s` seconds.
        """
        folder = self._folder / f"step-{step:09d}"
        end = time.monotonic() + limit_s
        while (found := _seen(folder)) is None or found.digest != digest:
            if time.monotonic() > end:
                raise PeerError(
                    f"this node does not see {folder} as rank 0 does after {limit_s:g} s; the run's folder must lie "
                    "on a file system that all nodes share"
                )
            time.sleep(_POLL_S)
        return found

    def _commit(self, folder: Path, step: int, fill: Fill, note: Mapping[str, Any]) -> str:
        temporary = Path(tempfile.mkdtemp(dir=self._folder, prefix=f".{folder.name}."))
        try:
            files = fill(temporary)
            content = {"format": FORMAT, "step": step, "identity": self._identity, "note": note, "files": files}
            manifest = _encode(content)
            _write(temporary / MANIFEST, manifest)
            _sync_folder(temporary)
            self._check_owner()
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            self._check_owner()  # its new owner may have taken the files away
            raise
        _sync_folder(self._folder)
        return hashlib.sha256(manifest).hexdigest()

    def _own(self, folder: Path) -> Found | None:
        """Return a checkpoint of this run; None, and out of the way, if it is broken."""
        found = self._verified(folder, thorough=True)
        if found and found.identity != self._identity:
            raise RankError(
                f"checkpoint {folder} belongs to another run ({found.identity}; this one is {self._identity}); "
                "remove it, or start over with --reset"
            )
        return found

    def _verified(self, folder: Path, *, thorough: bool) -> Found | None:
        try:
            return _read(folder, thorough=thorough)
        except _BrokenError as error:
            self._set_aside(folder, str(error))
            return None

    def _set_aside(self, folder: Path, reason: str) -> None:
        self._check_owner()
        names = chain([f"broken-{folder.name}"], (f"broken-{folder.name}.{number}" for number in count(1)))
        aside = next(path for name in names if not (path := self._folder / name).exists())
        folder.rename(aside)
        _sync_folder(self._folder)
        self._say(f"checkpoint {folder.name} is broken: {reason}; it is set aside as {aside.name}")

    def _prune(self) -> None:
        checked = [self._verified(folder, thorough=False) for folder in self._steps()]
        own = [found for found in checked if found and found.identity == self._identity]
        for found in own[self._keep :]:
            self._check_owner()
            try:
                found.folder.rename(tempfile.mkdtemp(dir=self._folder, prefix=f".{found.folder.name}."))
            except OSError as error:
                self._say(f"checkpoint {found.folder.name} cannot be deleted: {error.strerror}")
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        for leftover in self._folder.glob(".step-*"):
            self._check_owner()
            shutil.rmtree(leftover, ignore_errors=True)  # what is still open somewhere goes the next time

    def _steps(self) -> list[Path]:
        """Return the folders named as checkpoints, newest first."""
        if not self._folder.is_dir():
            return []
        found = [(int(match[1]), path) for path in self._folder.iterdir() if (match := _STEP.fullmatch(path.name))]
        return [path for _, path in sorted(found, reverse=True)]

    def _check_owner(self) -> None:
        if self._owner:
            self._owner.check()


def identity_of(folder: Path) -> str:
    """Return what tells this run from any other: 32 hexadecimal digits in the file `identity`, made once.

    Raises RankError when the file holds something else.
    """
    path = folder / IDENTITY
    if not path.exists():
        _write_once(path, os.urandom(16).hex())
    identity = path.read_text(errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{32}", identity):
        raise RankError(
            f"{path} holds {identity[:40]!a}, not 32 hexadecimal digits; put back the identity that the newest "
            "checkpoint's manifest.json names, or start over with --reset"
        )
    return identity


class _BrokenError(Exception):
    """A checkpoint does not verify."""


class _Hashing:
    """A file that `torch.save` writes into: what passes is hashed, without a second look at the disk.

    A path instead of a file would let other threads run no sooner, and hide why the disk refused.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0
        self.error: OSError | None = None
        self._file = file

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.size += written
        return written

    def flush(self) -> None:
        self._file.flush()

    @property
    def record(self) -> dict[str, Any]:
        return {"size": self.size, "sha256": self.sha256.hexdigest()}


def save_parts(parts: Mapping[str, Any], folder: Path) -> Files:
    """Write each part into a file of torch.save, under its name."""
    return {name: save_each([state], folder / name)[0] for name, state in parts.items()}


def save_each(states: Iterable[Any], path: Path) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Write the states one after the other into a new file, each as torch.save does.

    Returns the file's `size` and `sha256`, and where each state begins and how long it is, in bytes.
    """
    with path.open("xb") as file:
        hashing = _Hashing(file)
        spans = [_append(state, hashing) for state in states]
        file.flush()
        os.fsync(file.fileno())
    return hashing.record, spans


def save_bytes(content: bytes, path: Path) -> dict[str, Any]:
    """Write a new file; return its `size` and `sha256`."""
    _write(path, content)
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _append(state: Any, hashing: _Hashing) -> tuple[int, int]:
    begin = hashing.size
    try:
        torch.save(state, hashing)  # type: ignore[arg-type]  # only write and flush are called
    except RuntimeError:
        if hashing.error:  # torch's own words for it have lost the number
            raise hashing.error from None
        raise
    return begin, hashing.size - begin


def _encode(content: Mapping[str, Any]) -> bytes:
    """Return the manifest: the content in JSON, headed by a checksum over every byte that follows it."""
    rest = json.dumps(content, indent=1, allow_nan=False)[1:] + "\n"
    checksum = hashlib.sha256(rest.encode()).hexdigest()
    return f'{{\n "checksum": "{checksum}",{rest}'.encode()


def _decode(manifest: bytes) -> dict[str, Any]:
    match = re.fullmatch(rb'\{\n "checksum": "([0-9a-f]{64})",(.*)', manifest, re.DOTALL)
    if not match or hashlib.sha256(match[2]).hexdigest().encode() != match[1]:
        raise _BrokenError(f"{MANIFEST} does not match its own checksum")
    content: dict[str, Any] = json.loads(manifest)
    return content


def _read(folder: Path, *, thorough: bool) -> Found:
    """Return what the manifest says, compared with the files' sizes, and with all their bytes if `thorough`."""
    with _lost_is_broken(MANIFEST):
        manifest = (folder / MANIFEST).read_bytes()
    content = _decode(manifest)
    if content["format"] != FORMAT:
        raise RankError(
            f"checkpoint {folder} has format {content['format']}, this slurmddp reads {FORMAT}; use the one that "
            "wrote it, or start over with --reset"
        )
    if folder.name != f"step-{content['step']:09d}":
        raise _BrokenError(f"its {MANIFEST} is that of step {content['step']}")
    for name, file in content["files"].items():
        with _lost_is_broken(name):
            _compare(folder / name, file, thorough=thorough)
    return Found(
        folder=folder,
        digest=hashlib.sha256(manifest).hexdigest(),
        **{name: content[name] for name in ("step", "identity", "note", "files")},
    )


def _compare(path: Path, expected: Mapping[str, Any], *, thorough: bool) -> None:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected["size"]:
            raise _BrokenError(f"{path.name} has {size} bytes, not {expected['size']}")
        if thorough and hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
            raise _BrokenError(f"{path.name} does not match its checksum")


@contextmanager
def _lost_is_broken(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _LOST:
            raise
        raise _BrokenError(f"{name}: {error.strerror}") from error


def _seen(folder: Path) -> Found | None:
    """Return what this node sees of a checkpoint by now; None when that is not all of it."""
    try:
        os.listdir(folder.parent)  # noqa: PTH208 NFS goes on denying a name until its folder is listed again
        return _read(folder, thorough=False)
    except (_BrokenError, OSError):
        return None


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_once(path: Path, content: str) -> None:
    """Make a file that nobody sees half, and that no second writer changes."""
    temporary = Path(f"{path}.{os.urandom(8).hex()}")
    try:
        _write(temporary, content.encode())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
