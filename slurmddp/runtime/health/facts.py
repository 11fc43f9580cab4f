"""Facts of a rank: who it says it is, and what it finds on its node. Fast: no import of torch, no CUDA, no network.

`python -m slurmddp.runtime.health.facts FILE` checks a node that waits: it can write a file, and has these versions.
"""

import errno
import functools
import importlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from slurmddp.old_python import dataclass
from slurmddp.runs.files import sha256_of
from slurmddp.runtime.launch.addresses import FALLBACKS
from slurmddp.runtime.launch.rank import Rank
from slurmddp.slurm.values import parse_number
from slurmddp.version import __version__
from slurmddp.watchdog.gpu import list_uuids

SHM: Final = Path("/dev/shm")  # noqa: S108 - only its size is read
MISSING: Final = "missing"
"""The digest of a script that is not there."""
HIDDEN: Final = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One rank's view, in types that JSON keeps."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    host: str
    pid: int
    versions: dict[str, str] = field(default_factory=dict)
    """Of python, torch, slurmddp and, in a build with it, NCCL."""
    script: str = ""
    """The script in COMMAND; empty for another COMMAND."""
    digest: str = ""
    """The beginning of the sha256 of the script, or `missing`; empty when it cannot be read."""
    gpus: list[str] = field(default_factory=list)
    """GPUs that this rank sees."""
    gpus_asked: bool = False
    """Whether the job asked Slurm for GPUs."""
    cpus: list[int] = field(default_factory=list)
    """CPUs that this rank may run on."""
    cpus_wanted: int = 0
    """What the job asked Slurm for a rank; 0 if it did not ask."""
    cpus_of_node: int = 0
    """CPUs of the machine; 0 if Slurm is configured with more, as in a sandbox."""
    shm_mb: int = 0
    """Size of /dev/shm."""
    folder_error: str = ""
    """Why this node cannot write into the run's folder, by the name of errno; empty if it can."""
    head: str = ""
    """The name of the first node, if it does not resolve on this node; known to the first rank of a node."""
    failure: str = ""
    """Why this rank could not gather facts; the other fields are then empty."""

    @property
    def is_leader(self) -> bool:
        """Whether this is the first rank of its node, which speaks for the node."""
        return self.local_rank == 0

    @property
    def process(self) -> str:
        """Host and process id, as messages name a process."""
        return f"{self.host} (pid {self.pid})"


def group(ranks: Iterable[Facts], key: Callable[[Facts], str]) -> dict[str, list[Facts]]:
    """Return the facts by a key, in the order in which they come."""
    found: dict[str, list[Facts]] = {}
    for facts in ranks:
        found.setdefault(key(facts), []).append(facts)
    return found


def identify(rank: Rank) -> Facts:
    """Return what a rank says of itself without looking at its node."""
    names = ("rank", "local_rank", "node_rank", "world_size", "host")
    return Facts(**{name: getattr(rank, name) for name in names}, pid=os.getpid())


def gather_facts(rank: Rank, words: Sequence[str], environment: Mapping[str, str]) -> Facts:
    """Return this rank's facts; the first rank of each node also writes its mark into the run's folder.

    Raises nothing: `failure` holds the error.
    """
    identity = identify(rank)
    try:
        return replace(identity, **_measure(rank, words, environment))
    except Exception as error:  # noqa: BLE001 - a check that fails must not end a job that would run
        return replace(identity, failure=f"{type(error).__name__}: {error}")


def _measure(rank: Rank, words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    script = words[0] if words and not words[0].startswith("-") else ""  # else a module, executable or bundled task
    # The one task a node of fork and torchrun has the CPUs of all its ranks.
    ranks_of_task = rank.local_world_size if rank.launcher in ("fork", "torchrun") else 1
    cpus_of_task, cpus_given = (
        parse_number(environment.get(name, "")) or 0 for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
    )
    cpus_of_machine = os.cpu_count() or 0
    # `resolve_head` has replaced the first node's name by an address; it is not looked up again.
    first = rank.hosts[0] if rank.hosts and rank.node_rank and not rank.local_rank else ""
    is_replaced = first != rank.master_addr and rank.master_addr in map(environment.get, FALLBACKS)
    folder_error = ""
    if rank.local_rank == 0 and rank.run_dir:
        try:
            rank.run_dir.node_mark(rank.job, rank.attempt, rank.node_rank).touch(mode=0o600)
        except OSError as error:
            folder_error = errno.errorcode.get(error.errno or 0, str(error))
    return {
        "versions": versions(),
        "script": script,
        "digest": digest(script) if script else "",
        "gpus": select_visible(list_uuids(), environment.get("CUDA_VISIBLE_DEVICES")),
        "gpus_asked": "SLURM_GPUS_ON_NODE" in environment,
        "cpus": sorted(os.sched_getaffinity(0)),
        "cpus_wanted": cpus_of_task // ranks_of_task,
        "cpus_of_node": cpus_of_machine if cpus_given <= cpus_of_machine else 0,
        "shm_mb": shutil.disk_usage(SHM).total // 2**20 if SHM.is_dir() else 0,
        "folder_error": folder_error,
        "head": first if is_replaced else "",
    }


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that must be the same on all ranks.

    Of torch that of the loaded module; if the installed package differs from it, both.
    """
    torch = sys.modules.get("torch")
    try:
        package = str(metadata.version("torch"))
    except metadata.PackageNotFoundError:
        package = "no package"
    loaded = str(getattr(torch, "__version__", package))
    named = package if loaded.partition("+")[0] == package.partition("+")[0] else f"{loaded} (package: {package})"
    found = {"python": platform.python_version(), "slurmddp": __version__, "torch": named}
    if torch and torch.version.cuda and hasattr(torch._C, "_nccl_version"):  # noqa: SLF001 - a build without NCCL lacks it
        found["NCCL"] = ".".join(map(str, importlib.import_module("torch.cuda.nccl").version()))
    return found


def digest(path: str) -> str:
    """Return the first 12 digits of a file's sha256; `missing` if there is no file, empty if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return sha256_of(file)[:12]
    except FileNotFoundError:
        return MISSING
    except OSError:
        return ""


def select_visible(present: list[str], wanted: "str | None") -> list[str]:
    """Return the GPUs of `present` that CUDA_VISIBLE_DEVICES (`wanted`) leaves visible, in its order.

    Words are numbers or the beginnings of UUIDs; the first that names no GPU ends the list (CUDA C++ Programming Guide,
    CUDA Environment Variables). Without known GPUs, return the words themselves.
    """
    if wanted is None:
        return present
    if wanted in HIDDEN:
        return []
    words = [word.strip() for word in wanted.split(",")]
    if not present:
        return words
    found: list[str] = []
    for word in words:
        if word.isdecimal():
            named = present[int(word) : int(word) + 1]
        else:
            named = [word] if word.startswith("MIG-") else [uuid for uuid in present if word and uuid.startswith(word)]
        if not named:
            break
        found.append(named[0])
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).touch(mode=0o600)
    Path(sys.argv[1]).unlink(missing_ok=True)
    sys.stdout.write(json.dumps(versions()) + "\n")
