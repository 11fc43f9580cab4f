"""Copies a job's code, as it is when the job is submitted, to `code/` in the run's folder.

In a git work tree the code is every file that git does not ignore. Elsewhere it is the whole folder without caches,
virtual environments, and folders with a `.gitignore` that ignores `*`.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from slurmddp.config.configuration_files import SENT
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.code_copy import LISTING, Entry, digest_of
from slurmddp.runs.layout import RunDir
from slurmddp.script import git
from slurmddp.text import quote_value
from slurmddp.trust import explain_foreign

MOST_BYTES: Final = 256 * 2**20
MOST_FILES: Final = 20_000
_EXCLUDED = frozenset({"__pycache__", ".git", ".hg", ".svn", ".ipynb_checkpoints"})


class Code(NamedTuple):
    """The code of a job: a folder, and its entries at one time."""

    top: Path
    """A path without symbolic links."""
    entries: tuple[Entry, ...]

    @property
    def digest(self) -> str:
        """The name of the copy; it depends on the entries, not on the folder."""
        return digest_of(self.entries)


def read_code(spec: JobSpec) -> Code:
    """Return the code of a job.

    Raises UsageError when the code is too large, cannot be read, or does not have the job's script.
    """
    script, here = _script(spec), Path.cwd().resolve()
    start = here if script is None or script.is_relative_to(here) else script.parent
    work_tree = git.find_work_tree(start)
    top = work_tree.resolve() if work_tree else start
    paths = list_code(top)
    if script and not (script.is_relative_to(top) and str(script.relative_to(top)) in set(paths)):
        typed = spec.command[spec.parsed_command.place]
        raise UsageError(
            f"--snapshot: COMMAND's {quote_value(typed)} is not part of the code in {top}: git "
            "ignores it, or it is in another folder; add it to git, or leave --snapshot out"
        )
    _check_size(top, paths)
    return Code(top, tuple(_read_entry(top, path) for path in paths))


def list_code(top: Path) -> list[str]:
    """Return the paths of the code below the top of a work tree, or another folder. Raises UsageError for too many."""
    found = _in_work_tree(top, "") if git.find_work_tree(top) else _in_folder(top, "")
    found = (path for path in found if not PurePosixPath(path).name.startswith(".."))  # left by a killed submission
    paths = sorted(set(islice(found, MOST_FILES + 1)) - {LISTING, SENT})
    if len(paths) > MOST_FILES:
        raise UsageError(f"--snapshot: {top} has more than {MOST_FILES} files; {_advice(top)}")
    return paths


def copy_code(code: Code, run: RunDir) -> Path | None:
    """Copy the code to the run's folder, completely or not at all; return the copy, None when it already exists.

    Deleted and changed files of an existing copy are restored; its other files stay, since a job may be reading them.
    Raises UsageError when a file has changed since the code was read, or another user has made a file of the copy.
    """
    place = run.code(code.digest)
    was_there = place.is_dir()
    if was_there and (why := explain_foreign(place, below=True)):
        raise UsageError(f"--snapshot: {why}; remove {place}, or choose another --name")
    missing = [entry for entry in code.entries if not entry.is_in(place)]
    if was_there and not missing:
        return None
    run.codes.mkdir(exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=run.codes, prefix=f".{code.digest}."))
    try:
        for entry in missing:
            _copy(code.top, entry, part / entry.path)
        (part / LISTING).write_bytes(os.fsencode("\0".join(entry.path for entry in code.entries)))
        if was_there:
            for path in (*(entry.path for entry in missing), LISTING):
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (part / path).replace(place / path)
            return None
        part.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return None  # another process has put the same copy there
    finally:
        if part.exists():
            remove_copy(part)
    return place


def remove_copy(copy: Path) -> None:
    """Remove a copy that no job uses."""
    shutil.rmtree(copy)
    with suppress(OSError):  # the folder is not empty while it has other copies
        copy.parent.rmdir()


def _script(spec: JobSpec) -> Path | None:
    """Return the full path of the script; None for a module, the bundled worker, and an executable elsewhere."""
    command = spec.parsed_command
    if command.path_place is None or (command.kind == "executable" and command.words[0].startswith("/")):
        return None
    return (Path.cwd() / command.words[command.path_place]).resolve()


def _in_work_tree(top: Path, prefix: str) -> Iterator[str]:
    listed = git.list_files(top / prefix)
    parents = {path: PurePosixPath(path).parents[:-1] for path in listed}
    links = {parent for parent in set(chain(*parents.values())) if (top / prefix / parent).is_symlink()}
    for path in listed:
        place = top / prefix / path
        if not links.isdisjoint(parents[path]):  # the link to the folder is an entry itself
            continue
        if place.is_dir() and not place.is_symlink():
            # of the empty folder of a submodule that was never fetched: the outer one
            inner = git.find_work_tree(place)
            if place != top / prefix and inner and inner.resolve() == place.resolve():
                yield from _in_work_tree(top, f"{prefix}{path.rstrip('/')}/")
        elif place.is_symlink() or place.is_file():
            yield prefix + path


def _in_folder(top: Path, prefix: str) -> Iterator[str]:
    with os.scandir(top / prefix) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                ignore_file = Path(entry.path, ".gitignore")
                is_ignored = ignore_file.is_file() and b"*" in ignore_file.read_bytes().split()
                if entry.name not in _EXCLUDED and not is_ignored and not Path(entry.path, "pyvenv.cfg").is_file():
                    yield from _in_folder(top, f"{prefix}{entry.name}/")
            elif entry.is_symlink() or entry.is_file():
                yield prefix + entry.name


def _check_size(top: Path, paths: list[str]) -> None:
    sizes = [((top / path).lstat().st_size, path) for path in paths]
    whole = sum(size for size, _ in sizes)
    if whole > MOST_BYTES:
        size, path = max(sizes)
        raise UsageError(
            f"--snapshot: {top} has {whole // 2**20} MB, at most {MOST_BYTES // 2**20} are allowed; the largest file "
            f"is {quote_value(path)} with {size // 2**20}; {_advice(top)}"
        )


def _advice(top: Path) -> str:
    if git.find_work_tree(top):
        return "list the files that are not code in .gitignore"
    return "move the files that are not code, or make the folder a git repository and list them in .gitignore"


def _read_entry(top: Path, path: str) -> Entry:
    try:
        entry = Entry.read(top, path)
    except OSError as error:
        raise UsageError(f"--snapshot: {top / path} cannot be read: {error.strerror}") from error
    return entry._replace(content=_move_link(top, top / path, entry.content)) if entry.is_link else entry


def _move_link(top: Path, link: Path, target: str) -> str:
    """Return the target of a link in the copy: relative to the link inside the code, else absolute."""
    whole = Path(os.path.normpath(link.parent / target))
    return os.path.relpath(whole, link.parent) if whole.is_relative_to(top) else str(whole)


def _copy(top: Path, entry: Entry, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry.is_link:
        place.symlink_to(entry.content)
        return
    shutil.copyfile(top / entry.path, place)
    with place.open("rb") as copy:
        os.fsync(copy.fileno())
    if Entry.read(place.parent, place.name).content != entry.content:
        raise UsageError(f"--snapshot: {top / entry.path} changed while it was copied; submit again")
    place.chmod(0o555 if entry.executable else 0o444)
