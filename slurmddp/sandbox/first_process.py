"""The first process of a sandbox, inside its namespaces: starts the daemons and nodes, and answers requests.

`slurmddp.sandbox.up` starts it as `python -m slurmddp.sandbox.first_process FOLDER`. It holds the other end of standard
input. When that ends before the line STAY, the sandbox ends and leaves no files. Standard output reports the start: a
line for each daemon and node.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, TextIO, cast

from slurmddp.errors import ClusterError
from slurmddp.sandbox import control_channel, programs
from slurmddp.sandbox.configuration import HEAD, HEAD_ADDRESS
from slurmddp.sandbox.programs import run_command
from slurmddp.sandbox.state_directory import Files, Process
from slurmddp.slurm import client, commands

_DEADLINE_S: Final = 60
_POLL_S: Final = 0.02
_REAP_S: Final = 1.0
_BRIDGE: Final = "nodes"
_SMALL_DATABASE: Final = (
    *("--no-defaults", "--user=root", "--innodb-log-file-size=8M", "--innodb-doublewrite=0"),
    "--innodb-flush-method=nosync",
)
"""The database ends with the sandbox, so that nothing must survive a power failure."""


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
        shell = [*programs.unshare(rootless=False), "sh", "-e", str(programs.NODE_SCRIPT)]
        command = [*shell, self.name, self._address, "slurmd", "-D", "-N", self.name]
        with self._output.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 - words of our own
        with cast("IO[bytes]", self.process.stdin) as stdin, cast("IO[bytes]", self.process.stdout) as stdout:
            pid = int(stdout.readline())
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            numbers = next(line for line in status if line.startswith("NSpid:"))
            self._first = int(numbers.split()[-2])  # the sandbox is one namespace further in than that of /proc
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

    def set_link(self, state: str) -> None:
        """Set the network link `up` or `down`; the processes continue. Raises ClusterError when the node is off."""
        if not self.is_on:
            raise ClusterError(f"node {self.name} is off; switch it on with: slurmddp sandbox boot {self.name}")
        _ip(f"link set {self.name} {state}")
        self.disconnected = state == "down"


class Supervisor:
    """Starts, stops and watches the daemons and nodes of one sandbox."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.plan = files.read_plan()
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.nodes = {name: Node(name, self.plan.address(name), files.output(name)) for name in self.plan.node_names}

    def start(self) -> None:
        """Start all daemons and nodes; raise ClusterError when a daemon does not start."""
        self._write_clients()
        self._mount_files()
        run_command("hostname", HEAD)
        _ip("link set lo up")
        _ip(f"link add {_BRIDGE} type bridge")
        _ip(f"address add {HEAD_ADDRESS}/24 dev {_BRIDGE}")
        _ip(f"link set {_BRIDGE} up")
        socket_and_key = (f"--socket={self.files.munge_socket}", f"--key-file={self.files.munge_key}")
        kept = (f"--pid-file={self.files.folder}/run/munged.pid", f"--seed-file={self.files.folder}/run/munged.seed")
        munged = ["munged", "--foreground", "--force", *socket_and_key, *kept]  # --force allows a folder in /tmp
        self._start("munged", munged, self.files.munge_socket)
        if self.plan.accounting:
            self._start_accounting()
        self._start("slurmctld", ["slurmctld", "-D"], commands.PING)
        for name, node in self.nodes.items():
            _print_line(name)
            node.boot()

    def handle_request(self, request: dict[str, str]) -> dict[str, Any]:
        """Do what a request asks for; return which daemons and nodes run then, and which nodes are disconnected."""
        actions: dict[str, Callable[[Node], None]] = {
            "boot": Node.boot,
            "kill": Node.kill,
            "disconnect": lambda node: node.set_link("down"),
            "reconnect": lambda node: node.set_link("up"),
        }
        try:
            if action := actions.get(request["do"]):
                action(self.nodes[request["node"]])
        except ClusterError as error:
            return {"error": str(error)}
        return {
            "daemons": {name: daemon.poll() is None for name, daemon in self.daemons.items()},
            "nodes": {name: node.is_on for name, node in self.nodes.items()},
            "disconnected": {name: node.disconnected for name, node in self.nodes.items()},
        }

    def _write_clients(self) -> None:
        outside = Process.current()
        user = ["--user", "--preserve-credentials"] if self.files.passwd.exists() else []
        options = ["--target", str(outside.pid), *user, "--mount", "--net", "--uts", "--"]
        enter = [programs.find("nsenter") or "nsenter", *options]  # a client keeps its own numbering of processes
        for place in filter(None, map(programs.find, programs.CLIENTS)):
            text = programs.client_program(self.files.python, place, enter, outside, self.files.slurm_conf)
            stand_in = self.files.bin / Path(place).name
            stand_in.write_text(text)
            stand_in.chmod(0o755)

    def _mount_files(self) -> None:
        covers = {self.files.bin: self.files.empty, Path("/etc/hosts"): self.files.hosts}
        if self.files.passwd.exists():
            covers[Path("/etc/passwd")] = self.files.passwd
        for number in range(self.plan.most_gpus):
            covers[self.files.gpu(number)] = Path("/dev/null")
        for place, cover in covers.items():
            run_command("mount", "--bind", str(cover), str(place))

    def _start_accounting(self) -> None:
        """Start an empty database, to which only the folder of its socket limits the access, and slurmdbd."""
        _print_line("database")
        path = self.files.database_socket
        database = (*_SMALL_DATABASE, f"--datadir={self.files.database}")
        access = ("--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=normal")
        run_command("mariadb-install-db", *database, *access)
        options = (f"--socket={path}", "--skip-networking", f"--log-error={self.files.log('mariadbd')}")
        self._start("mariadbd", ["mariadbd", *database, *options], path)
        slurmdbd = ["env", f"MYSQL_UNIX_PORT={path}", "slurmdbd", "-D"]  # it reads the path only from its environment
        self._start("slurmdbd", slurmdbd, commands.list_accounts("cluster", columns="Cluster"))
        client.order([*commands.ADD_CLUSTER, self.plan.cluster], os.environ)

    def _start(self, name: str, command: list[str], test: Path | Sequence[str]) -> None:
        """Start a daemon; return when its socket `test` is there, or Slurm's program `test` gets an answer from it."""
        _print_line(name)
        with self.files.output(name).open("ab") as output:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603 - Slurm's daemons, found when the sandbox was planned
        self.daemons[name] = daemon
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            if isinstance(test, Path):
                said = "" if test.is_socket() else f"there is no {test}"
            else:
                answer = client.ask(test, os.environ)
                said = answer.reason if answer.status else ""
            if not said:
                return
            if daemon.poll() is not None:
                raise ClusterError(f"{name} ended: {self.files.last_log_lines(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} does not answer: {said} ({self.files.log(name)})")
            time.sleep(_POLL_S)


def main() -> None:
    """Start a sandbox and serve it; return when the caller ends without asking for it to stay."""
    if os.getpid() != 1:
        sys.exit("this is the first process of a sandbox; type: slurmddp sandbox up")
    files = Files(Path(sys.argv[1]))
    files.process.write_text(json.dumps(Process.current()._asdict()))
    # locked for the life of this process, so that systemd-tmpfiles does not remove it from /tmp
    fcntl.flock(os.open(files.folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)
    os.environ.update(PATH=programs.search_path(), SLURM_CONF=str(files.slurm_conf))
    supervisor = Supervisor(files)
    try:
        supervisor.start()
        with control_channel.listen(files.control) as server:
            _print_line(control_channel.READY)
            _serve(supervisor, server)
    except (ClusterError, OSError) as error:
        traceback.print_exc()
        with contextlib.suppress(BrokenPipeError):
            _print_line(f"{control_channel.FAILED}{error}")
        sys.stdin.buffer.readline()
    _end_all(files)
    files.remove()


def _serve(supervisor: Supervisor, server: socket.socket) -> None:
    """Answer requests and collect ended processes until the caller ends, or for good after the line STAY."""
    watched: list[socket.socket | TextIO] = [server, sys.stdin]
    while True:
        ready, _, _ = select.select(watched, [], [], _REAP_S)
        for process in (*supervisor.daemons.values(), *(node.process for node in supervisor.nodes.values())):
            if process:
                process.poll()
        with contextlib.suppress(ChildProcessError):  # the first process of a namespace inherits all orphans
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if server in ready:
            control_channel.answer_request(server, supervisor.handle_request)
        if sys.stdin in ready:
            if sys.stdin.buffer.readline() != control_channel.STAY:
                return
            watched.remove(sys.stdin)


def _end_all(files: Files) -> None:
    """End all other processes of the sandbox, wait for them, and undo the mounts on its files."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    for mount in Path("/proc/self/mounts").read_text().splitlines():
        if (place := mount.split()[1]).startswith(f"{files.folder}/"):
            run_command("umount", place)


def _ip(words: str) -> None:
    run_command("ip", *words.split())


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
