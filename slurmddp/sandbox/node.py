"""One node of a sandbox: its namespaces, its network link, and slurmd. Starts and ends processes."""

import contextlib
import os
import signal
import subprocess
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


class Node:
    """One node, which is off at first. Its network link has, outside of the node, the name of the node."""

    def __init__(self, name: str, address: str, output: Path) -> None:
        self.name, self._address, self._output = name, address, output
        self.process: subprocess.Popen[bytes] | None = None
        """What holds the node; it ends when the node's first process ends, and with it all others. None when off."""
        self._first = 0
        """The pid of the node's first process in the sandbox's namespace."""
        self.disconnected = False

    @property
    def is_on(self) -> bool:
        """Whether the node runs."""
        return self.process is not None and self.process.poll() is None

    def boot(self) -> None:
        """Create the node's namespaces and its network link, and start slurmd; nothing for a node that is on."""
        if self.is_on:
            return
        self.kill()
        command = [*namespaces.node_command(self.name, self._address), *daemons.slurmd(self.name)]
        with self._output.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        with cast("IO[bytes]", self.process.stdin) as stdin, cast("IO[bytes]", self.process.stdout) as stdout:
            pid = int(stdout.readline())
            self._first = _pid_in_sandbox(pid)
            _ip(f"link add {self.name} type veth peer name eth0 netns /proc/{pid}/ns/net")
            _ip(f"link set {self.name} master {_BRIDGE} up")
            stdin.write(b"go\n")

    def kill(self) -> None:
        """Remove the network link, so that no message leaves the node, and end all its processes."""
        if self.process is None:
            return
        with contextlib.suppress(ClusterError):  # a node that ended by itself loses its link
            _ip(f"link delete {self.name}")
        if self.is_on:
            os.kill(self._first, signal.SIGKILL)
        self.process.wait()
        self.process, self.disconnected = None, False

    def disconnect(self) -> None:
        """Disconnect the network link; the processes continue. Raises ClusterError when the node is off."""
        self._set_link("down")

    def reconnect(self) -> None:
        """Connect the network link again. Raises ClusterError when the node is off."""
        self._set_link("up")

    def _set_link(self, state: str) -> None:
        if not self.is_on:
            raise ClusterError(f"node {self.name} is off; switch it on with: slurmddp sandbox boot {self.name}")
        _ip(f"link set {self.name} {state}")
        self.disconnected = state == "down"


def _pid_in_sandbox(pid: int) -> int:
    """Convert a pid of the namespace of /proc into that of the sandbox, one namespace further in."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(numbers.split()[-2])


def _ip(words: str) -> None:
    programs.run_command("ip", *words.split())
