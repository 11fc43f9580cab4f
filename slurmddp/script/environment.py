"""Packs the Python environment of a job into one archive, for `--stage-env`. Reads the environment, starts its Python.

A copy is named by a key of the environment's files. While they do not change, the archive is not written again.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from slurmddp.batch.stage import PREFIX
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import environment_archive
from slurmddp.runs.ownership import is_gone
from slurmddp.script.quoting import shell
from slurmddp.script.setup_lines import activation_lines, python_of
from slurmddp.text import quote_value
from slurmddp.trust import explain_distrust, explain_foreign

_PART: Final = ".packing-"
"""Begins the name of the folder in which an archive is written; the process and its machine end it."""
_SYSTEM: Final = ("/", "/usr", "/usr/local")
"""Prefixes of a Python that each node has on its own disk."""
_ARCHIVE: Final = b"gzip"
"""A new word for another form of the archive, which then gets another name."""
_DIGITS: Final = 16
_LIMIT_S: Final = 120.0
_PROBE: Final = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix]))"


@dataclass(frozen=True)
class Environment:
    """A Python environment: its folder, and that of its base interpreter if that has to be copied, too."""

    prefix: Path
    base: Path | None = None

    @cached_property
    def key(self) -> str:
        """The name of the copy. A changed, new or removed file changes it, a compiled module does not."""
        whole = hashlib.sha256(_ARCHIVE)
        for place, path in self.entries():
            if "__pycache__" not in path.parts and not stat.S_ISDIR((info := path.lstat()).st_mode):
                values = (place, path, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)
                whole.update(os.fsencode("\0".join(map(str, values)) + "\n"))
        return whole.hexdigest()[:_DIGITS]

    @property
    def variable(self) -> str:
        """The variable that names the active environment of this kind; empty for a plain installation."""
        names = {"pyvenv.cfg": "VIRTUAL_ENV", "conda-meta": "CONDA_PREFIX"}
        return next((name for file, name in names.items() if (self.prefix / file).exists()), "")

    def entries(self) -> Iterator[tuple[str, Path]]:
        """Yield each file, link and folder with its path in the archive, in a fixed order."""
        yield from _walk(self.prefix, "env", _conda_folders(self.prefix))
        if self.base:
            settings = self.prefix / "pyvenv.cfg"
            is_used = settings.is_file() and b"include-system-site-packages = true" in settings.read_bytes()
            packages = () if is_used else tuple(self.base.glob("lib/python3*/site-packages"))
            yield from _walk(self.base, "base", (*_conda_folders(self.base), *packages))

    def link_target(self, link: Path, place: str) -> str:
        """Return the target of a link in the archive: relative to the link within the copied folders, else absolute."""
        target = Path(os.path.normpath(link.parent / link.readlink()))
        for name, folder in (("env", self.prefix), ("base", self.base)):
            for root in (folder, folder.resolve()) if folder else ():  # by either of their names
                if target.is_relative_to(root):
                    return os.path.relpath(name / target.relative_to(root), Path(place).parent)
        return str(target)


def read_environment(spec: JobSpec) -> Environment:
    """Return the environment of the ranks.

    Raises UsageError when its Python does not start here, and for a Python of the system.
    """
    prefix, base = _ask_python(spec)
    if prefix in _SYSTEM or not Path(prefix, "bin", "python3").exists():
        raise UsageError(
            f"--stage-env: the ranks' Python in {quote_value(prefix)} is no environment of its own; give one by "
            "--venv, --conda or --python"
        )
    return Environment(Path(prefix), None if base in (prefix, *_SYSTEM) else Path(base))


def pack_environment(environment: Environment, runs_dir: str) -> Path | None:
    """Write the archive of an environment; return it, None when it already exists.

    Raises UsageError for a file that cannot be read or written.
    """
    archive = environment_archive(runs_dir, environment.key)
    try:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := explain_distrust(archive.parent) or explain_foreign(archive.parent):
            raise UsageError(f"--stage-env: the archive would not be yours alone: {why}; or choose --runs-dir")
        _remove_leftovers(archive.parent)
        if archive.exists():
            return None
        part = archive.parent / f"{_PART}{os.getpid()}@{os.uname().nodename}"
        part.mkdir(exist_ok=True)
        try:
            _write(environment, part / archive.name)
            (part / ".gitignore").write_text("*\n")
            for name in (".gitignore", archive.name):
                (part / name).replace(archive.parent / name)
        finally:
            shutil.rmtree(part)
    except OSError as error:
        raise UsageError(f"--stage-env: {error.filename or archive}: {error.strerror}") from error
    return archive


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes of this machine left that were killed while they packed."""
    for part in folder.glob(f"{_PART}*"):
        pid, _, host = part.name.removeprefix(_PART).partition("@")
        if is_gone(host, pid):
            shutil.rmtree(part, ignore_errors=True)


def _write(environment: Environment, archive: Path) -> None:
    """Write the archive. Nothing is compressed, which takes long; by gzip's checksum a node finds a damaged archive."""
    moved = {PREFIX: str(environment.prefix)}
    with archive.open("wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=0, pax_headers=moved) as tar:
            for place, path in environment.entries():
                member = tar.gettarinfo(path, place)
                if member.issym():
                    member.linkname = environment.link_target(path, place)
                member.mode |= stat.S_IRWXU if member.isdir() else stat.S_IRUSR | stat.S_IWUSR  # it can be removed
                with path.open("rb") if member.isreg() else nullcontext() as content:
                    tar.addfile(member, content)
        file.flush()
        os.fsync(file.fileno())


def _ask_python(spec: JobSpec) -> tuple[str, str]:
    """Return the prefix and the base prefix of the ranks' Python, activated as in the job."""
    lines = "\n".join(["set -e", *activation_lines(spec), f"exec {shell((python_of(spec), '-I', '-c', _PROBE))}"])
    try:
        done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=_LIMIT_S, check=True)  # noqa: S603, S607 - the user's own lines and Python, by the user's bash
        prefix, base = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise UsageError(f"--stage-env: the ranks' Python does not start here: {said}") from error
    return prefix, base


def _conda_folders(root: Path) -> tuple[Path, ...]:
    """Return the folders of a conda installation that belong to its other environments."""
    return (root / "pkgs", root / "envs") if (root / "conda-meta").is_dir() else ()


def _walk(folder: Path, place: str, excluded: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    yield place, folder
    for path in sorted(folder.iterdir()):
        if path in excluded:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, f"{place}/{path.name}", excluded)
        else:
            yield f"{place}/{path.name}", path
