"""One node of a sandbox: namespaces of its own, a cable to the others, and slurmd. Starts and ends processes."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from slurmddp.errors import ClusterError
from slurmddp.sandbox import namespaces
from slurmddp.sandbox.configuration import HEAD_ADDRESS
from slurmddp.sandbox.processes import ip

_BRIDGE: Final = "nodes"


def make_network() -> None:
    """Make what all nodes are plugged into, and give the calling process an address there."""
    ip("link set lo up")
    ip(f"link add {_BRIDGE} type bridge")
    ip(f"address add {HEAD_ADDRESS}/24 dev {_BRIDGE}")
    ip(f"link set {_BRIDGE} up")


@dataclass(frozen=True)
class Node:
    """One node that was switched on. Its cable has, on the outside, the name of the node."""

    name: str
    unshare: subprocess.Popen[bytes]
    """Ends when the node's first process, and so all of them, have ended."""
    first: int
    """The node's first process, as the sandbox numbers it."""

    @classmethod
    def boot(cls, name: str, address: str, output: Path) -> "Node":
        """Make the node's namespaces, plug its cable in, and let it start slurmd."""
        with output.open("ab") as log:
            command = namespaces.node_command(name, address)
            pipe = subprocess.PIPE
            unshare = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
        stdin, stdout = _pipes(unshare)
        with stdin, stdout:
            first = _own_number(stdout.readline())
            ip(f"link add {name} type veth peer name eth0 netns {unshare.pid}")
            ip(f"link set {name} master {_BRIDGE} up")
            stdin.write(b"go\n")
        return cls(name, unshare, first)

    @property
    def is_on(self) -> bool:
        """Whether it runs."""
        return self.unshare.poll() is None

    def cut(self) -> None:
        """Pull the cable out: the processes live on, and nobody hears from them."""
        ip(f"link set {self.name} down")

    def heal(self) -> None:
        """Plug the cable in again."""
        ip(f"link set {self.name} up")

    def kill(self) -> None:
        """Remove the cable, so that nobody hears the node die, and end all its processes."""
        with contextlib.suppress(ClusterError):  # the cable of a node that ended by itself is gone, or going
            ip(f"link delete {self.name}")
        if self.is_on:
            os.kill(self.first, signal.SIGKILL)
        self.unshare.wait()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process was started without pipes")
    return process.stdin, process.stdout


def _own_number(line: bytes) -> int:
    """Return, for a process as /proc numbers it, its number one namespace further in: the sandbox's."""
    status = Path(f"/proc/{int(line)}/status").read_text()
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(numbers.split()[-2])
