"""Which programs a sandbox needs, and what to do about those that are missing. Runs probes that end at once."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.sandbox.namespaces import unshare
from slurmddp.sandbox.state_directory import base

_CLIENTS: Final = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo"),
    *("sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger"),
)

_NEEDED: Final[Mapping[str, str]] = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "ip": "iproute2",
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "srun": "slurm-wlm",
    "squeue": "slurm-wlm",
    "scontrol": "slurm-wlm",
    "sinfo": "slurm-wlm",
}
"""Each program, with the Debian package that has it."""
_ROOTLESS: Final[Mapping[str, str]] = {"newuidmap": "uidmap"}
_ACCOUNTING: Final[Mapping[str, str]] = {
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-wlm",
}


def outside_path() -> list[str]:
    """Return the folders of PATH without those of any sandbox."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [folder for folder in folders if not folder.startswith(f"{base()}/")]


def search_path() -> str:
    """Return where to look for the machine's own programs, daemons included."""
    return os.pathsep.join([*outside_path(), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def find(program: str) -> str | None:
    """Return where the machine's own `program` is, or None."""
    return shutil.which(program, path=search_path())


def require(program: str) -> str:
    """Return where the machine's own `program` is; raise ClusterError when it has none."""
    if place := find(program):
        return place
    raise ClusterError(f"not on this machine: {program}")


def clients() -> dict[str, str]:
    """Return Slurm's client programs that the machine has, each with its place."""
    return {name: place for name in _CLIENTS if (place := find(name))}


def check(*, accounting: bool = False) -> None:
    """Raise ClusterError when the machine cannot hold a sandbox, with what to do about it."""
    rootless = os.getuid() != 0
    needed = {**_NEEDED, **(_ROOTLESS if rootless else {}), **(_ACCOUNTING if accounting else {})}
    missing = [program for program in needed if find(program) is None]
    if missing:
        packages = " ".join(dict.fromkeys(needed[program] for program in missing))
        raise ClusterError(f"not on this machine: {', '.join(missing)}; install: apt install {packages}")
    if rootless:
        _check_user_namespaces()
    elif reason := _refusal(unshare(rootless=False)):
        raise ClusterError(f"root may not make namespaces here ({reason}); use a machine or container that may")


def _check_user_namespaces() -> None:
    if reason := _refusal(["unshare", "--user", "--map-root-user"]):
        raise ClusterError(f"user namespaces are refused to ordinary users here ({reason}); {_ALLOW}")
    if reason := _refusal(unshare(rootless=True)):
        raise ClusterError(f"this user cannot make a sandbox ({reason}); {_ADD}")


_ALLOW: Final = (
    "as root: sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 "
    "(those of the two that exist), or start the sandbox as root"
)
_ADD: Final = "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"


def _refusal(unshare_words: list[str]) -> str:
    """Return what the command that makes namespaces says against it; empty when it works."""
    result = subprocess.run([*unshare_words, "true"], capture_output=True, text=True, check=False)
    return result.stderr.strip().replace("\n", "; ") if result.returncode else ""
