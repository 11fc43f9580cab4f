"""The commands that create and enter namespaces, and the client programs that use them. Text only."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from slurmddp.sandbox.state_directory import Process

_AS_ROOT: Final = ("--user", "--map-root-user", "--map-auto", "--setgroups", "allow")

NODE_SCRIPT: Final = """
read -r pid _ </proc/self/stat
echo "$pid"
read -r _
mount -t proc proc /proc
hostname "$1"
ip link set lo up
ip address add "$2/24" dev eth0
ip link set eth0 up
shift 2
"$@" &
wait "$!"
"""
"""A node's first process: prints its pid, waits for its network link, runs its command, inherits orphans."""


def unshare(*, rootless: bool) -> list[str]:
    """Return the beginning of a command that runs the rest as the first process of new namespaces.

    All processes in them end when it ends, and it ends when the process that started it ends.
    """
    kinds = ("--mount", "--net", "--pid", "--uts", "--propagation", "slave")
    return ["unshare", *(_AS_ROOT if rootless else ()), *kinds, "--fork", "--kill-child"]


def node_command(node: str, address: str) -> list[str]:
    """Return the beginning of the command that starts a node inside the sandbox; slurmd's own command follows."""
    return [*unshare(rootless=False), "sh", "-e", "-c", NODE_SCRIPT, "node", node, address]


def nsenter_options(target: Process, *, rootless: bool) -> list[str]:
    """Return nsenter's options for entering the sandbox, except for its pid namespace."""
    user = ["--user", "--preserve-credentials"] if rootless else []
    return ["--target", str(target.pid), *user, "--mount", "--net", "--uts", "--"]


def client_program(*, python: Path, program: str, enter: Sequence[str], target: Process, slurm_conf: Path) -> str:
    """Return the text of a client program for use outside, which runs the real program inside the sandbox.

    It is not a shell script, because a shell drops variables with unusual names, such as exported functions.
    """
    return _CLIENT_PROGRAM.format(
        python=python,
        name=Path(program).name,
        stat=f"/proc/{target.pid}/stat",
        start=str(target.start).encode(),
        enter=[word.encode() for word in enter],
        program=program.encode(),
        slurm_conf=str(slurm_conf).encode(),
    )


_CLIENT_PROGRAM = '''\
#!{python} -IS
"""Run {name} inside the sandbox with the same arguments, environment, folder and streams, byte for byte."""

import _signal
import posix
import sys


def is_up():
    try:
        with open({stat!r}, "rb") as file:
            return file.read().rpartition(b")")[2].split()[19] == {start!r}
    except OSError:
        return False


def own(name):
    with open("/proc/self/" + name, "rb") as file:
        return file.read().split(b"\\0")[:-1]


if not is_up():
    sys.exit("{name}: error: the sandbox is down; start it with: slurmddp sandbox up")
try:
    folder = posix.getcwd()
except OSError:
    sys.exit("{name}: error: the working folder no longer exists")
environment = dict(entry.split(b"=", 1) for entry in own("environ") if b"=" in entry)
environment[b"SLURM_CONF"] = {slurm_conf!r}
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
command = [*{enter!r}, b"env", b"-C", posix.getcwdb(), {program!r}, *own("cmdline")[3:]]
posix.execve(command[0], command, environment)
'''
