"""Where the run is kept: whether it can be written to, is seen by the nodes, and has room. Nothing is written."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.file_systems import is_own, is_shared, type_of
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir

LEAST_BYTES: Final = 2**30
"""Wanted free for a run that has no checkpoint yet by which to tell."""
LEAST_INODES: Final = 1000
QUOTA_LIMIT_S: Final = 1.0
_CACHES: Final = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def check_storage(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with the run's folder, its room, the quota, and the folders of compilers."""
    run = RunDir.named(spec.runs_dir, spec.job_name)
    there = next(folder for folder in (run.path, *run.path.parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            check="folder",
            level="error",
            what=f"{there} cannot be written to, and the run's folder {run.path} is to be there",
            advice="choose another place by --runs-dir",
            status=2,
        )
        return
    yield _of_sharing(run.path, there)
    yield from _of_room(run, there, spec)
    yield from _of_quota()
    yield from _of_caches(spec, environ)


def _of_sharing(path: Path, there: Path) -> Finding:
    kind = type_of(there) or "unknown"
    if is_shared(there):
        return Finding(check="folder", level="ok", what=f"{path} is writable, on a network file system ({kind})")
    advice = "put runs on the file system that the nodes share, by --runs-dir; `slurmddp doctor --in-job` tries it"
    why = "the nodes then write logs and checkpoints to folders of their own, or to none"
    if is_own(there):
        what = f"{path} lies where only this machine sees it ({kind}, {_mounted(there)})"
        return Finding(check="folder", level="warning", what=what, why=why, advice=advice)
    what = f"{path} is writable; whether the nodes see it cannot be told from its file system ({kind})"
    return Finding(check="folder", level="note", what=what, why=why, advice=advice)


def _mounted(there: Path) -> str:
    return f"/{there.resolve().parts[1]}" if len(there.resolve().parts) > 1 else "/"


def _of_room(run: RunDir, there: Path, spec: JobSpec) -> Iterator[Finding]:
    free, wanted = shutil.disk_usage(there).free, needed_bytes(run, spec)
    inodes = os.statvfs(there)
    if free < wanted:
        yield Finding(
            check="room",
            level="warning",
            what=f"{_gb(free)} GB are free where the run is to be, and it may need {_gb(wanted)}",
            why="a checkpoint that finds no room is lost; the job goes on without",
            advice="remove old runs, or choose another place by --runs-dir",
        )
    elif inodes.f_files and inodes.f_favail < LEAST_INODES:
        yield Finding(
            check="room",
            level="warning",
            what=f"{inodes.f_favail} more files can be made where the run is to be",
            why="a checkpoint that finds no room is lost; the job goes on without",
            advice="remove old files, or choose another place by --runs-dir",
        )
    else:
        yield Finding(check="room", level="ok", what=f"{_gb(free)} GB are free where the run is to be")


def needed_bytes(run: RunDir, spec: JobSpec) -> int:
    """Return what the run's checkpoints may need: the newest one's size for each that is kept, and one more."""
    newest = max(run.checkpoints.glob("step-*"), default=None)
    if newest is None:
        return LEAST_BYTES
    size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    there = sum(1 for _ in run.checkpoints.glob("step-*"))
    return size * max(1, spec.worker.keep_checkpoints + 1 - there)


def _of_quota() -> Iterator[Finding]:
    """Ask quota(1), where there is one, for limits that are exceeded: it names those alone."""
    if shutil.which("quota") is None:
        return
    try:
        done = subprocess.run(["quota", "-q"], capture_output=True, text=True, timeout=QUOTA_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    said = " ".join(done.stdout.split())
    if said:
        yield Finding(
            check="quota",
            level="warning",
            what=f"quota says: {said[:200]}",
            why="a checkpoint that finds no room is lost",
            advice="remove what is not needed; `quota -s` shows the limits",
        )


def _of_caches(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    given = dict(item.split("=", 1) for item in spec.variables if "=" in item)
    for name in _CACHES:
        folder = given.get(name, environ.get(name))
        if folder and is_shared(Path(folder).expanduser()):
            yield Finding(
                check="caches",
                level="warning",
                what=f"{name}={folder} is on a network file system ({type_of(Path(folder))})",
                why="nodes replace each other's compiled files, and ranks fail by `Stale file handle`",
                advice=f"--env {name}=/tmp/{name.partition('_')[0].lower()} keeps them on each node",
            )
    yield from _of_home(given, environ)


def _of_home(given: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Triton keeps what it compiles in ~/.triton, where no variable says otherwise; inductor keeps it in /tmp."""
    home = Path(environ.get("HOME", "/"))
    if "TRITON_CACHE_DIR" not in {*given, *environ} and is_shared(home):
        yield Finding(
            check="caches",
            level="note",
            what=f"a program that uses Triton keeps compiled files in {home}/.triton, on a network file system",
            advice="--env TRITON_CACHE_DIR=/tmp/triton keeps them on each node",
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g}"
