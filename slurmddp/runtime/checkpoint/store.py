"""Reads and writes checkpoints on disk. A checkpoint is complete or does not exist. No communication.

step-000000100/     the checkpoint after 100 steps: files of torch.save
  manifest.json     written last: size and CRC-32 (format 1: SHA-256) of each file, and a checksum of itself
.step-000000100.*   a checkpoint that is being written or deleted
broken-step-...     a checkpoint that failed verification; never read and never deleted
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import torch

from slurmddp.errors import PeerError, RankError
from slurmddp.old_python import dataclass
from slurmddp.runs.files import create_exclusively, open_regular, sha256_of, sync_folder, write_whole
from slurmddp.runs.layout import IDENTITY, MANIFEST

FORMAT = 2
INDEX = "index.pt"
"""The index of a divided state: the state without its tensors, and where each rank's pieces are."""
_STEP = re.compile(r"step-([0-9]{9,})")
_FILE_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.-]{1,200}")
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.EFBIG}
"""Errors of opening or reading a file that mean its content is lost for good, or that it is none of a checkpoint."""
_POLL_S = 0.1
_MANIFEST_KINDS = {"format": int, "step": int, "identity": str, "note": dict, "files": dict}
_PIECE_BYTES, _RECORD_BYTES = 2**23, 2**16
"""So much is given to the disk at once; of a record of that length and more, the CRC-32 is not computed again."""

Files = dict[str, dict[str, Any]]
"""By file name: `size` in bytes, and `crc32` or `sha256` in hexadecimal digits."""
Fill = Callable[[Path], Files]
"""Writes new files into a folder; they are on disk when it returns."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint that passed verification."""

    step: int
    """Steps taken before it was saved."""
    folder: Path
    digest: str
    """sha256 of the manifest, which holds those of all files."""
    identity: str
    """The run that saved it."""
    files: Mapping[str, Mapping[str, Any]]
    """As in `Files`."""


class Store:
    """The checkpoints of one run in one folder. One process writes them; any process may read them.

    `check_owner` is called before each commit and each deletion, and raises FencedError when another attempt owns the
    run. `say` prints a line for the user.
    """

    def __init__(
        self, folder: Path, *, identity: str, keep: int, check_owner: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self.identity = identity
        self._keep = keep
        self.check_owner = check_owner
        self._say = say

    def write(self, step: int, parts: Mapping[str, Any], note: Mapping[str, Any]) -> str:
        """Write each part into a file of torch.save, as `write_with` does; return the checkpoint's digest."""
        return self.write_with(step, lambda folder: save_parts(parts, folder), note)

    def write_with(self, step: int, fill: Fill, note: Mapping[str, Any]) -> str:
        """Let `fill` write the files of a new checkpoint; return its digest when it is on disk.

        An existing valid checkpoint of that step is kept instead. The newest `keep` valid checkpoints stay.
        Raises FencedError when another attempt owns the run, OSError when the disk refuses (then nothing is left
        behind), RankError when that step exists and belongs to another run.
        """
        self.check_owner()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / IDENTITY).exists():  # the folder was removed during the run
            create_exclusively(self.folder / IDENTITY, self.identity)
        self._remove_leftovers()
        folder = self.folder / f"step-{step:09d}"
        there = self._verify(folder, thorough=True) if folder.exists() else None
        digest = there.digest if there else self._commit(folder, step, fill, note)
        self._prune()
        return digest

    def newest(self) -> "Saved | None":
        """Return the newest checkpoint whose bytes all verify; None when there is none.

        Newer ones that are broken are renamed. Raises RankError when the newest belongs to another run, FencedError
        when one must be renamed and another attempt owns the run.
        """
        return next(filter(None, (self._verify(folder, thorough=True) for folder in self._steps())), None)

    def load(self, found: Saved, name: str) -> Any:
        """Return the content of the file `name`, with its tensors in host memory."""
        # Without mmap: an optimizer keeps the tensors it loads, and the file is deleted later.
        return torch.load(found.folder / name, map_location="cpu", weights_only=True)

    def wait_for(self, step: int, digest: str, limit_s: float) -> Saved:
        """Return the checkpoint of that step and digest as soon as this node sees it.

        Raises PeerError when this takes more than `limit_s` seconds.
        """
        folder = self.folder / f"step-{step:09d}"
        end = time.monotonic() + limit_s
        while True:
            with suppress(_BrokenError, OSError):
                os.listdir(folder.parent)  # noqa: PTH208 NFS denies a new name until its folder is listed again
                found = _read(folder, thorough=False)
                if found.digest == digest:
                    return found
            if time.monotonic() > end:
                raise PeerError(
                    f"this node does not see {folder} as rank 0 does after {limit_s:g} s; the run's folder must lie "
                    "on a file system that all nodes share"
                )
            time.sleep(_POLL_S)

    def _commit(self, folder: Path, step: int, fill: Fill, note: Mapping[str, Any]) -> str:
        temporary = Path(tempfile.mkdtemp(dir=self.folder, prefix=f".{folder.name}."))
        try:
            files = fill(temporary)
            content = {"format": FORMAT, "step": step, "identity": self.identity, "note": note, "files": files}
            # as JSON, with a checksum of every byte after the checksum itself; `_decode` reads it
            rest = json.dumps(content, indent=1, allow_nan=False)[1:] + "\n"
            manifest = f'{{\n "checksum": "{hashlib.sha256(rest.encode()).hexdigest()}",{rest}'.encode()
            write_whole(temporary / MANIFEST, manifest)  # makes all names in this folder durable, too
            self.check_owner()
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            self.check_owner()  # its new owner may have removed the files
            raise
        sync_folder(self.folder)
        return hashlib.sha256(manifest).hexdigest()

    def _verify(self, folder: Path, *, thorough: bool) -> "Saved | None":
        """Return a checkpoint, if it is `thorough` one of this run; None when it is broken, after renaming it."""
        try:
            found = _read(folder, thorough=thorough)
        except _BrokenError as error:
            self.check_owner()
            names = chain([f"broken-{folder.name}"], (f"broken-{folder.name}.{number}" for number in count(1)))
            aside = next(path for name in names if not (path := self.folder / name).exists())
            folder.rename(aside)
            sync_folder(self.folder)
            self._say(f"checkpoint {folder.name} is broken: {error}; it was renamed to {aside.name}")
            return None
        if thorough and found.identity != self.identity:
            raise RankError(
                f"checkpoint {folder} belongs to another run ({found.identity}; this one is {self.identity}); "
                "remove it, or start over with --reset"
            )
        return found

    def _prune(self) -> None:
        checked = [self._verify(folder, thorough=False) for folder in self._steps()]
        own = [found for found in checked if found and found.identity == self.identity]
        for found in own[self._keep :]:
            self.check_owner()
            try:
                found.folder.rename(tempfile.mkdtemp(dir=self.folder, prefix=f".{found.folder.name}."))
            except OSError as error:
                self._say(f"checkpoint {found.folder.name} cannot be deleted: {error.strerror}")
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        for leftover in self.folder.glob(".step-*"):
            self.check_owner()
            shutil.rmtree(leftover, ignore_errors=True)  # files that are still open are removed the next time

    def _steps(self) -> list[Path]:
        """Return the folders named as checkpoints, newest first."""
        if not self.folder.is_dir():
            return []
        found = [(int(match[1]), path) for path in self.folder.iterdir() if (match := _STEP.fullmatch(path.name))]
        return [path for _, path in sorted(found, reverse=True)]


def ensure_identity(folder: Path) -> str:
    """Return the identity of the run: 32 hexadecimal digits in the file `identity`, which is made if it is missing.

    Raises OSError when it cannot be written, RankError when the file holds something else.
    """
    path = folder / IDENTITY
    if not path.exists():
        create_exclusively(path, os.urandom(16).hex())
    identity = path.read_text(errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{32}", identity):
        raise RankError(
            f"{path} holds {identity[:40]!a}, not 32 hexadecimal digits; put back the identity that the newest "
            "checkpoint's manifest.json names, or start over with --reset"
        )
    return identity


class _BrokenError(Exception):
    """A checkpoint fails verification."""


class _Output:
    """A file for `torch.save` that knows its CRC-32, and lets the disk begin at once to store what is written.

    torch computes that of each record of its archive, and writes it behind the record; it is not computed again.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.crc32 = self.size = self._record = self._begun = 0
        self._file, self.flush = file, file.flush

    def write(self, data: bytes) -> int:
        if self._record:  # it was written last; torch.serialization.set_crc32_options(False) puts a 0 behind it
            known = int.from_bytes(data[4:8], "little") if data[:4] == b"PK\x07\x08" else 0
            known = known or int(_crc32_of(self._file, self.size - self._record), 16)
            self.crc32 = _times(_crc_shift(self._record), self.crc32) ^ known
        for begin in range(0, len(data), _PIECE_BYTES):
            self.size += self._file.write(data[begin : begin + _PIECE_BYTES])
            if self.size - self._begun >= _PIECE_BYTES:
                os.posix_fadvise(self._file.fileno(), self._begun, self.size - self._begun, os.POSIX_FADV_DONTNEED)
                self._begun = self.size
        self._record = len(data) if len(data) >= _RECORD_BYTES else 0
        self.crc32 = self.crc32 if self._record else zlib.crc32(data, self.crc32)
        return len(data)


def _crc32_of(file: BinaryIO, begin: int = 0) -> str:
    file.flush()
    crc = 0
    while piece := os.pread(file.fileno(), 2**20, begin):
        crc, begin = zlib.crc32(piece, crc), begin + len(piece)
    return f"{crc:08x}"


def _times(one: int, other: int) -> int:
    """Multiply polynomials modulo that of CRC-32; the highest of the 32 bits is x^0."""
    product = 0
    while one:
        product ^= other * (one >> 31)
        one, other = one << 1 & 0xFFFFFFFF, other >> 1 ^ 0xEDB88320 * (other & 1)
    return product


@cache
def _crc_shift(length: int) -> int:
    """Return by what a CRC-32 is multiplied when `length` bytes follow: x^(8 length), as crc32_combine of zlib does."""
    half = _crc_shift(length // 2) if length else 1 << 31
    return _times(_times(half, half), 1 << 31 - 8 * (length % 2))


def save_parts(parts: Mapping[str, Any], folder: Path) -> Files:
    """Write each part into a file of torch.save, under its name."""
    return {name: save_states([state], folder / name)[0] for name, state in parts.items()}


def save_states(states: Iterable[Any], path: Path) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Write the states into a new file, one after the other, each as torch.save does.

    Returns the file's `size` and `crc32`, and the offset and the length of each state in bytes.
    """
    with path.open("xb+") as file:
        output, spans = _Output(file), []
        for state in states:
            begin = output.size
            try:
                torch.save(state, output)  # type: ignore[arg-type]  # only write and flush are called
            except RuntimeError as error:  # torch ends the file after an error of the disk, and hides its number
                raise error.__context__ if isinstance(error.__context__, OSError) else error from None
            spans.append((begin, output.size - begin))
        file.flush()
        os.fsync(file.fileno())
    return {"size": output.size, "crc32": f"{output.crc32:08x}"}, spans


def _decode(manifest: bytes) -> dict[str, Any]:
    match = re.fullmatch(rb'\{\n "checksum": "([0-9a-f]{64})",(.*)', manifest, re.DOTALL)
    if not match or hashlib.sha256(match[2]).hexdigest().encode() != match[1]:
        raise _BrokenError(f"{MANIFEST} does not match its own checksum")
    with suppress(ValueError, RecursionError, LookupError, TypeError, AttributeError):
        content = json.loads(manifest)
        kinds = {key: type(content[key]) for key in _MANIFEST_KINDS}
        sums = [(name, file["size"], file.get("crc32") or file["sha256"]) for name, file in content["files"].items()]
        fit = [(type(size), type(value)) == (int, str) and _FILE_NAME.fullmatch(name) for name, size, value in sums]
        if kinds == _MANIFEST_KINDS and fit and all(fit):
            return dict(content)
    raise _BrokenError(f"{MANIFEST} does not describe a checkpoint")


def _read(folder: Path, *, thorough: bool) -> Saved:
    """Return what the manifest says, after comparing the files' sizes, and with `thorough` also all their bytes."""
    name = MANIFEST
    try:
        with open_regular(folder / name, follow=False) as file_of_manifest:
            manifest = file_of_manifest.read()
        content = _decode(manifest)
        if content["format"] not in (1, FORMAT):
            raise RankError(
                f"checkpoint {folder} has format {content['format']}, this slurmddp reads 1 and {FORMAT}; use the one "
                "that wrote it, or start over with --reset"
            )
        if folder.name != f"step-{content['step']:09d}":
            raise _BrokenError(f"its {MANIFEST} is that of step {content['step']}")
        for name, file in content["files"].items():
            with open_regular(folder / name, grows=True, follow=False) as content_of_file:
                size = os.fstat(content_of_file.fileno()).st_size
                if size != file["size"]:
                    raise _BrokenError(f"{name} has {size} bytes, not {file['size']}")
                checksum = file.get("crc32") or file["sha256"]
                if thorough and checksum != (_crc32_of if "crc32" in file else sha256_of)(content_of_file):
                    raise _BrokenError(f"{name} does not match its checksum")
    except OSError as error:
        if error.errno not in _LOST:
            raise
        raise _BrokenError(f"{name}: {error.strerror}") from error
    return Saved(
        folder=folder,
        digest=hashlib.sha256(manifest).hexdigest(),
        **{name: content[name] for name in ("step", "identity", "files")},
    )
