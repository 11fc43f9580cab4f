"""One node of a sandbox: its namespaces, its network link, and slurmd. Starts and ends processes."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from slurmddp.errors import ClusterError
from slurmddp.sandbox import daemons, namespaces, programs
from slurmddp.sandbox.configuration import HEAD_ADDRESS

_BRIDGE: Final = "nodes"


def make_network() -> None:
    """Create the bridge that connects all nodes, and give the calling process an address on it."""
    _ip("link set lo up")
    _ip(f"link add {_BRIDGE} type bridge")
    _ip(f"address add {HEAD_ADDRESS}/24 dev {_BRIDGE}")
    _ip(f"link set {_BRIDGE} up")


@dataclass(frozen=True)
class Node:
    """One node that was switched on. Its network link has, outside of the node, the name of the node."""

    name: str
    unshare: subprocess.Popen[bytes]
    """The process that holds the node; it ends when the node's first process ends, and with it all others."""
    first: int
    """The pid of the node's first process in the sandbox's namespace."""

    @classmethod
    def boot(cls, name: str, address: str, output: Path) -> "Node":
        """Create the node's namespaces and its network link, and start slurmd."""
        with output.open("ab") as log:
            command = [*namespaces.node_command(name, address), *daemons.slurmd(name)]
            unshare = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        stdin, stdout = cast("IO[bytes]", unshare.stdin), cast("IO[bytes]", unshare.stdout)
        with stdin, stdout:
            pid = int(stdout.readline())
            first = _pid_in_sandbox(pid)
            _ip(f"link add {name} type veth peer name eth0 netns /proc/{pid}/ns/net")
            _ip(f"link set {name} master {_BRIDGE} up")
            stdin.write(b"go\n")
        return cls(name, unshare, first)

    @property
    def is_on(self) -> bool:
        """Whether the node runs."""
        return self.unshare.poll() is None

    def disconnect(self) -> None:
        """Disconnect the network link; the processes continue."""
        _ip(f"link set {self.name} down")

    def reconnect(self) -> None:
        """Connect the network link again."""
        _ip(f"link set {self.name} up")

    def kill(self) -> None:
        """Remove the network link, so that no message leaves the node, and end all its processes."""
        with contextlib.suppress(ClusterError):  # a node that ended by itself loses its link
            _ip(f"link delete {self.name}")
        if self.is_on:
            os.kill(self.first, signal.SIGKILL)
        self.unshare.wait()


def _pid_in_sandbox(pid: int) -> int:
    """Convert a pid of the namespace of /proc into that of the sandbox, one namespace further in."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(numbers.split()[-2])


def _ip(words: str) -> None:
    programs.run_command("ip", *words.split())
