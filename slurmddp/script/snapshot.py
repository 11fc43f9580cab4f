"""A job's code as it is now, and the copy of it in the run's folder. Reads the code; writes into `code/` only.

In a git work tree that is every file that git does not ignore, as it is on disk; elsewhere the folder, but for
caches, virtual environments and folders that say of themselves, by a `.gitignore` with `*`, that they are no source.
"""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final

from slurmddp.config.command import script_of
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import git
from slurmddp.text import shown

MOST_BYTES: Final = 256 * 2**20
MOST_FILES: Final = 20_000
_DIGITS: Final = 16
"""Of the digest in a folder's name: 64 bits, for a few copies of one person."""
_BLOCK: Final = 2**20
_NO_SOURCE = frozenset({"__pycache__", ".git", ".hg", ".svn", ".ipynb_checkpoints"})


@dataclass(frozen=True)
class Entry:
    """A file, or a symbolic link, of the code."""

    path: str
    """From the top, with `/`."""
    content: str
    """A file's sha256 in hex; where a link leads to."""
    is_link: bool = False
    executable: bool = False


@dataclass(frozen=True)
class Code:
    """The code of a job: a folder, and what is in it at one time."""

    top: Path
    """Without symbolic links."""
    entries: tuple[Entry, ...]

    @property
    def digest(self) -> str:
        """The name of this content, the same for the same files wherever they lie."""
        whole = hashlib.sha256()
        for entry in self.entries:
            kind = "l" if entry.is_link else "x" if entry.executable else "f"
            whole.update(os.fsencode(f"{kind}\0{entry.path}\0{entry.content}\0"))
        return whole.hexdigest()[:_DIGITS]


def code_of(spec: JobSpec) -> Code | None:
    """Return the code of a job that is to run a copy of it; None for another job.

    Raises UsageError when it is too much to copy, cannot be read, or lacks the job's own script.
    """
    if not spec.snapshot:
        return None
    script = _script(spec)
    top, paths = _listed(_start(script))
    if script:
        _check_has(top, paths, script)
    _check_size(top, paths)
    return Code(top, tuple(_entry(top, path) for path in paths))


def keep(code: Code, run: RunDir) -> Path | None:
    """Copy the code into the run's folder, whole or not at all; return the copy, None where another has made it.

    What has been deleted of a copy is put back, and the rest of it, which a job may be reading, stays.
    Raises UsageError when a file has changed since the code was read.
    """
    place = run.code(code.digest)
    was_there = place.is_dir()
    gone = [entry for entry in code.entries if not os.path.lexists(place / entry.path)]
    if was_there and not gone:
        return None
    run.codes.mkdir(exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=run.codes, prefix=f".{code.digest}."))
    try:
        for entry in gone:
            _copy(code.top, entry, part / entry.path)
        if was_there:
            _put_back(gone, part, place)
        elif _moved(part, place):
            return place
    finally:
        if part.exists():
            discard(part)
    return None


def _moved(part: Path, place: Path) -> bool:
    """Move a whole copy to its place; tell whether it is there, or another process was quicker with the same one."""
    try:
        part.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def discard(copy: Path) -> None:
    """Remove a copy that no job was submitted with, whole or not."""
    shutil.rmtree(copy)
    with suppress(OSError):  # others' copies are beside it
        copy.parent.rmdir()


def _put_back(entries: Sequence[Entry], part: Path, place: Path) -> None:
    for entry in entries:
        (place / entry.path).parent.mkdir(parents=True, exist_ok=True)
        (part / entry.path).replace(place / entry.path)


def _script(spec: JobSpec) -> Path | None:
    """Return the script; None for a module, the bundled worker, and an executable that is none of the code."""
    script = script_of(spec.command)
    if script is None or (spec.no_python and (script.startswith("/") or "/" not in script)):
        return None
    return Path(script)


def _start(script: Path | None) -> Path:
    """Return the folder whose code is meant: this one, or that of a script which lies elsewhere."""
    here = Path.cwd().resolve()
    if script is None or (here / script).resolve().is_relative_to(here):
        return here
    return (here / script).resolve().parent


def _listed(start: Path) -> tuple[Path, list[str]]:
    """Return the top of the code, and the paths in it, sorted."""
    top = git.work_tree(start)
    if top is None:
        return start, sorted(_limited(start, _in_folder(start, "")))
    return top.resolve(), sorted(set(_limited(top, _in_work_tree(top, ""))))


def _limited(top: Path, paths: Iterator[str]) -> Iterator[str]:
    for number, path in enumerate(paths):
        if number == MOST_FILES:
            raise UsageError(f"--snapshot: {top} has more than {MOST_FILES} files; {_advice(top)}")
        yield path


def _in_work_tree(top: Path, prefix: str) -> Iterator[str]:
    listed = git.files(top / prefix)
    if listed is None:
        raise UsageError(f"--snapshot: git does not list the files of {top / prefix}; see `git status` there")
    for path in _not_through_links(top / prefix, listed):
        place = top / prefix / path
        if place.is_dir() and not place.is_symlink():
            if place != top / prefix and _is_work_tree(place):  # a submodule, or a repository that is none
                yield from _in_work_tree(top, f"{prefix}{path.rstrip('/')}/")
        elif _is_source(place):
            yield prefix + path


def _not_through_links(folder: Path, paths: list[str]) -> Iterator[str]:
    """Leave out what git tracks in folders that are links by now: the link is the code, and it may lead anywhere."""
    parents = {path: PurePosixPath(path).parents[:-1] for path in paths}
    links = {parent for parent in set(chain(*parents.values())) if (folder / parent).is_symlink()}
    return (path for path in paths if links.isdisjoint(parents[path]))


def _is_work_tree(folder: Path) -> bool:
    """Tell a repository from the empty folder of a submodule that was never fetched, which is its parent's."""
    top = git.work_tree(folder)
    return top is not None and top.resolve() == folder.resolve()


def _in_folder(top: Path, prefix: str) -> Iterator[str]:
    with os.scandir(top / prefix) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not _is_no_source(Path(entry.path)):
                    yield from _in_folder(top, f"{prefix}{entry.name}/")
            elif _is_source(Path(entry.path)):
                yield prefix + entry.name


def _is_no_source(folder: Path) -> bool:
    marked = folder / ".gitignore"
    return (
        folder.name in _NO_SOURCE
        or (folder / "pyvenv.cfg").is_file()
        or (marked.is_file() and b"*" in marked.read_bytes().split())
    )


def _is_source(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _check_has(top: Path, paths: list[str], script: Path) -> None:
    place = (Path.cwd() / script).resolve()
    if not place.is_relative_to(top) or str(place.relative_to(top)) not in set(paths):
        raise UsageError(
            f"--snapshot: COMMAND's {shown(str(script))} is not part of the code in {top}, nor is anything that git "
            "ignores; add it to git, or leave --snapshot out"
        )


def _check_size(top: Path, paths: list[str]) -> None:
    sizes = [((top / path).lstat().st_size, path) for path in paths]
    whole = sum(size for size, _ in sizes)
    if whole > MOST_BYTES:
        size, path = max(sizes)
        raise UsageError(
            f"--snapshot: {top} holds {_mb(whole)} MB, more than {_mb(MOST_BYTES)}, of which {shown(path)} has "
            f"{_mb(size)}; {_advice(top)}"
        )


def _advice(top: Path) -> str:
    if git.work_tree(top):
        return "name what is no code in .gitignore"
    return "move what is no code elsewhere, or make it a git repository and name that in .gitignore"


def _mb(size: int) -> int:
    return size // 2**20


def _entry(top: Path, path: str) -> Entry:
    place = top / path
    try:
        if place.is_symlink():
            return Entry(path, _target(top, place), is_link=True)
        with place.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Entry(path, digest, executable=bool(place.stat().st_mode & stat.S_IXUSR))
    except OSError as error:
        raise UsageError(f"--snapshot: {place} cannot be read: {error.strerror}") from error


def _target(top: Path, link: Path) -> str:
    """Return where a link leads to: relative within the code, in full where it leads out of it."""
    target = Path(os.path.normpath(link.parent / link.readlink()))
    return os.path.relpath(target, link.parent) if target.is_relative_to(top) else str(target)


def _copy(top: Path, entry: Entry, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry.is_link:
        place.symlink_to(entry.content)
        return
    found = hashlib.sha256()
    with (top / entry.path).open("rb") as source, place.open("xb") as copy:
        while block := source.read(_BLOCK):
            found.update(block)
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    if found.hexdigest() != entry.content:
        raise UsageError(f"--snapshot: {top / entry.path} changed while it was copied; submit again")
    place.chmod(0o555 if entry.executable else 0o444)
