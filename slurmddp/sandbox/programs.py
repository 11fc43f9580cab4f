"""The programs of a sandbox: those it needs, the commands for its namespaces, and the clients that enter them.

Says how to install what is missing, and runs short commands.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.sandbox.state_directory import Process, base_folder
from slurmddp.slurm import client, commands

CLIENTS: Final = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo"),
    *("sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger"),
)
"""Slurm's programs for users, of which some may not be installed."""

_NEEDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("unshare", "nsenter", "setsid"), "util-linux"),
    "mount": "mount",
    "hostname": "hostname",
    "ip": "iproute2",
    "munged": "munge",
    **dict.fromkeys(("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "sinfo"), "slurm-wlm"),
}
"""Each program, with the Debian package that contains it."""
_ROOTLESS: Final[Mapping[str, str]] = {"newuidmap": "uidmap"}
_ACCOUNTING: Final[Mapping[str, str]] = {
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-wlm",
}
_ALLOW: Final = (
    "type as root: sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 "
    "(leave out the one that does not exist), or start the sandbox as root"
)
_ADD: Final = "type as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"


_AS_ROOT: Final = ("--user", "--map-root-user", "--map-auto", "--setgroups", "allow")

NODE_SCRIPT: Final = Path(__file__).with_name("node.sh")
"""A node's first process: prints its pid, waits for its network link, runs its command, inherits orphans."""
_CLIENT_PROGRAM: Final = Path(__file__).with_name("client_program.in")


def outside_path() -> list[str]:
    """Return the folders of PATH except those of sandboxes."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [folder for folder in folders if not folder.startswith(f"{base_folder()}/")]


def search_path() -> str:
    """Return the PATH of the machine's own programs, including daemons."""
    return os.pathsep.join([*outside_path(), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def find(program: str) -> str | None:
    """Return the path of the machine's own `program`, or None."""
    return shutil.which(program, path=search_path())


def slurm_version() -> tuple[int, int]:
    """Return the version of the installed Slurm, for example (22, 5); raise ClusterError when it does not say it."""
    said = client.query(commands.SHOW_VERSION, {"PATH": search_path()})
    if found := re.search(r"(\d+)\.(\d+)", said):
        return int(found[1]), int(found[2])
    raise ClusterError(f"slurmd -V says no version: {said.strip()!r}")


def unshare(*, rootless: bool) -> list[str]:
    """Return the beginning of a command that runs the rest as the first process of new namespaces.

    All processes in them end when it ends, and it ends when the process that started it ends.
    """
    kinds = ("--mount", "--net", "--pid", "--uts", "--propagation", "slave")
    return ["unshare", *(_AS_ROOT if rootless else ()), *kinds, "--fork", "--kill-child"]


def client_program(python: Path, program: str, enter: Sequence[str], target: Process, slurm_conf: Path) -> str:
    """Return the text of a client program for use outside, which runs the real program inside the sandbox.

    It is not a shell script, because a shell drops variables with unusual names, such as exported functions.
    """
    return _CLIENT_PROGRAM.read_text("utf-8").format(
        python=python,
        name=Path(program).name,
        stat=f"/proc/{target.pid}/stat",
        start=str(target.start).encode(),
        enter=[word.encode() for word in enter],
        program=program.encode(),
        slurm_conf=str(slurm_conf).encode(),
    )


def run_command(*command: str) -> None:
    """Run a command to its end; raise ClusterError with its error text when it fails."""
    if said := find_error(command):
        raise ClusterError(f"{' '.join(command)}: {said}")


def find_error(command: Sequence[str]) -> str:
    """Run a command to its end; return its error text in one line, empty when it works."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - words of our own
    said = (done.stderr or done.stdout).strip().replace("\n", "; ")
    return (said or f"it ends with status {done.returncode}") if done.returncode else ""


def check_machine(*, accounting: bool = False) -> None:
    """Raise ClusterError, with the remedy, when no sandbox can run on this machine."""
    rootless = os.getuid() != 0
    needed = {**_NEEDED, **(_ROOTLESS if rootless else {}), **(_ACCOUNTING if accounting else {})}
    if missing := [program for program in needed if find(program) is None]:
        packages = " ".join(dict.fromkeys(needed[program] for program in missing))
        raise ClusterError(f"not installed on this machine: {', '.join(missing)}; type: apt install {packages}")
    if rootless:
        if reason := find_error(["unshare", "--user", "--map-root-user", "true"]):
            raise ClusterError(f"ordinary users cannot create user namespaces here ({reason}); {_ALLOW}")
        if reason := find_error([*unshare(rootless=True), "true"]):
            raise ClusterError(f"this user cannot start a sandbox ({reason}); {_ADD}")
    elif reason := find_error([*unshare(rootless=False), "true"]):
        raise ClusterError(f"root cannot create namespaces here ({reason}); use a machine or container that allows it")
