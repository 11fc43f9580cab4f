"""The folder of the run: whether it is writable, shared by the nodes, and has room. Writes nothing."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.catalogue import finding
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir

LEAST_BYTES: Final = 2**30
"""How much must be free for a run without a checkpoint, whose size is not known."""
QUOTA_LIMIT_S: Final = 1.0
MOUNTS: Final = Path("/proc/self/mounts")
_SHARED: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "cvmfs", "glusterfs", "gpfs", "lustre", "mmfs", "moosefs"),
        *("nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"),
    }
)
"""Network file systems, by their names in MOUNTS; one of fuse can be of any kind."""
_NODE_LOCAL: Final = frozenset({"overlay", "ramfs", "rootfs", "squashfs", "tmpfs"})
"""File systems that no other machine can see."""
_LOCAL_FOLDERS: Final = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - only compared
_FIELDS: Final = 6
"""At least: options may hold spaces, as those of 9p do."""


def check_storage(spec: JobSpec) -> Iterator[Finding]:
    """Yield the findings about the run's folder, its room and the quota."""
    run = RunDir.named(spec.runs_dir, spec.job_name)
    existing = next(folder for folder in (run.path, *run.path.parents) if folder.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield finding("folder", "read-only", existing=existing, path=run.path)
        return
    case, kind = file_system(existing)
    root = "".join(existing.resolve().parts[:2])
    yield finding("folder", case, path=run.path, kind=kind or "unknown", root=root)
    free, wanted = shutil.disk_usage(existing).free, needed_bytes(run, spec)
    yield finding("room", "bytes" if free < wanted else "ok", free=free / 1e9, wanted=wanted / 1e9)
    yield from _check_quota()


def needed_bytes(run: RunDir, spec: JobSpec) -> int:
    """Return what the run's checkpoints may still need: one more than are kept, each as large as the newest."""
    existing = sorted(run.checkpoints.glob("step-*"))
    if not existing:
        return LEAST_BYTES
    size = sum(path.stat().st_size for path in existing[-1].rglob("*") if path.is_file())
    return size * max(1, spec.worker.keep_checkpoints + 1 - len(existing))


def _check_quota() -> Iterator[Finding]:
    """Yield the exceeded limits that quota(1) prints, if that program is installed."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(["quota", "-q"], capture_output=True, text=True, timeout=QUOTA_LIMIT_S, check=False)  # noqa: S607 - by PATH: systems have it in different folders
        if exceeded := " ".join(done.stdout.split()):
            yield finding("quota", "exceeded", exceeded=exceeded)


def file_system(path: Path) -> tuple[Literal["shared", "local", "unknown"], str]:
    """Return whether other machines see the file system of a path, and its type, empty if that is not known.

    The path need not exist. A folder such as /tmp is `local`, too.
    """
    real, mounts = os.path.realpath(path), _read_mounts()
    above = (point for point in mounts if real == point or real.startswith(point.rstrip("/") + "/"))
    kind = mounts.get(max(above, key=len, default=""), "")
    is_local = kind in _NODE_LOCAL or real.startswith(_LOCAL_FOLDERS)
    return "shared" if kind in _SHARED else "local" if is_local else "unknown", kind


@cache
def _read_mounts() -> dict[str, str]:
    """Return the type of each mount point in MOUNTS (proc(5)); a later mount hides an earlier one."""
    lines: list[str] = []
    with suppress(OSError):
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    mounts = [fields for fields in (line.split(" ") for line in lines) if len(fields) >= _FIELDS]
    return {re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point): kind for _, point, kind, *_ in mounts}
