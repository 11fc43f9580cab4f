"""The first process of a sandbox, inside its namespaces: starts the daemons and nodes, and answers requests.

Started by `slurmddp.sandbox.up` as `python -m slurmddp.sandbox.first_process FOLDER`. Standard input is the caller:
when it ends before the caller has said that the sandbox shall stay, the sandbox ends and leaves nothing.
Standard output takes what comes up, a line each.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from slurmddp.errors import ClusterError
from slurmddp.sandbox import control_channel, daemons, namespaces, programs
from slurmddp.sandbox.configuration import HEAD
from slurmddp.sandbox.node import Node, make_network
from slurmddp.sandbox.processes import run
from slurmddp.sandbox.state_directory import Files, Process

_DEADLINE_S: Final = 60
_POLL_S: Final = 0.02


class Supervisor:
    """One sandbox: its daemons and nodes, by name."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.plan = files.read_plan()
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.nodes: dict[str, Node] = {}
        self.cut_off: set[str] = set()

    def start(self) -> None:
        """Start everything; raise ClusterError when a daemon does not come up."""
        self._write_clients()
        self._cover_host_files()
        run("hostname", HEAD)
        make_network()
        self._start("munged", daemons.munged(self.files), ["test", "-S", str(self.files.munge_socket)])
        if self.plan.accounting:
            self._start_accounting()
        self._start("slurmctld", daemons.slurmctld(), ["scontrol", "ping"])
        for node in self.plan.node_names:
            _say(node)
            self.boot(node)

    def boot(self, node: str) -> None:
        """Switch a node on, unless it is."""
        if not self._is_on(node):
            self.kill(node)
            self.nodes[node] = Node.boot(node, self.plan.address(node), self.files.output(node))

    def kill(self, node: str) -> None:
        """Take a node's power, if it has any."""
        self.cut_off.discard(node)
        if running := self.nodes.pop(node, None):
            running.kill()

    def cut(self, node: str) -> None:
        """Pull a node's cable out; raise ClusterError when the node is off."""
        self._running(node).cut()
        self.cut_off.add(node)

    def heal(self, node: str) -> None:
        """Plug a node's cable in again; raise ClusterError when the node is off."""
        self._running(node).heal()
        self.cut_off.discard(node)

    def answer(self, request: dict[str, str]) -> dict[str, Any]:
        """Carry out a request; the answer says which daemons and nodes run then, and which nodes are cut off."""
        actions = {"boot": self.boot, "kill": self.kill, "cut": self.cut, "heal": self.heal}
        try:
            if action := actions.get(request["do"]):
                action(request["node"])
        except ClusterError as error:
            return {"error": str(error)}
        return {
            "daemons": {name: daemon.poll() is None for name, daemon in self.daemons.items()},
            "nodes": {name: self._is_on(name) for name in self.plan.node_names},
            "cut": {name: name in self.cut_off for name in self.plan.node_names},
        }

    def reap(self) -> None:
        """Take note of all that has ended; the first process inherits every orphan."""
        mine = [*self.daemons.values(), *(node.unshare for node in self.nodes.values())]
        known = {process.pid: process for process in mine}
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if process := known.get(ended.si_pid):
                    process.poll()
                else:
                    os.waitpid(ended.si_pid, 0)

    def _running(self, node: str) -> Node:
        if not self._is_on(node):
            raise ClusterError(f"node {node} is off; switch it on with: slurmddp sandbox boot {node}")
        return self.nodes[node]

    def _is_on(self, node: str) -> bool:
        return node in self.nodes and self.nodes[node].is_on

    def _write_clients(self) -> None:
        outside = Process.current()
        options = namespaces.nsenter_options(outside, rootless=self.files.passwd.exists())
        enter = [programs.require("nsenter"), *options]
        for name, place in programs.clients().items():
            client = self.files.bin / name
            client.write_text(
                namespaces.shim(
                    python=self.files.python,
                    program=place,
                    enter=enter,
                    target=outside,
                    slurm_conf=self.files.slurm_conf,
                )
            )
            client.chmod(0o755)

    def _cover_host_files(self) -> None:
        covers = {self.files.bin: self.files.empty, Path("/etc/hosts"): self.files.hosts}
        if self.files.passwd.exists():
            covers[Path("/etc/passwd")] = self.files.passwd
        for number in range(self.plan.most_gpus):
            covers[self.files.gpu(number)] = Path("/dev/null")
        for place, cover in covers.items():
            run("mount", "--bind", str(cover), str(place))

    def _start_accounting(self) -> None:
        _say("database")
        run(*daemons.make_database(self.files))
        self._start("mariadbd", daemons.mariadbd(self.files), ["test", "-S", str(self.files.database_socket)])
        self._start("slurmdbd", daemons.slurmdbd(self.files), ["sacctmgr", "-n", "list", "cluster"])
        run("sacctmgr", "-i", "add", "cluster", self.plan.cluster)

    def _start(self, name: str, command: list[str], test: list[str]) -> None:
        """Start a daemon; return when the command `test` succeeds."""
        _say(name)
        with self.files.output(name).open("ab") as output:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.daemons[name] = daemon
        deadline = time.monotonic() + _DEADLINE_S
        while (answer := subprocess.run(test, capture_output=True, text=True, check=False)).returncode:
            if daemon.poll() is not None:
                raise ClusterError(f"{name} ended: {self.files.last_words(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} does not answer: {answer.stderr.strip()} ({self.files.log(name)})")
            time.sleep(_POLL_S)


def main() -> None:
    """Bring a sandbox up and hold it; return when its caller has gone before saying that it shall stay."""
    if os.getpid() != 1:
        sys.exit("this is the first process of a sandbox; type: slurmddp sandbox up")
    files = Files(Path(sys.argv[1]))
    files.process.write_text(json.dumps(asdict(Process.current())))
    files.hold()
    os.environ.update(PATH=programs.search_path(), SLURM_CONF=str(files.slurm_conf))
    supervisor = Supervisor(files)
    try:
        supervisor.start()
        with control_channel.listen(files.control) as server:
            _say(control_channel.READY)
            _hold(supervisor, server)
    except (ClusterError, OSError) as error:
        traceback.print_exc()
        with contextlib.suppress(BrokenPipeError):
            _say(f"{control_channel.FAILED}{error}")
        sys.stdin.buffer.readline()
    _end_all(files)
    files.remove()


def _hold(supervisor: Supervisor, server: socket.socket) -> None:
    """Answer requests, and adopt orphans, for as long as the caller wants."""
    deaths = _deaths()

    def bury() -> None:
        os.read(deaths, 4096)
        supervisor.reap()

    with selectors.DefaultSelector() as events:
        events.register(server, selectors.EVENT_READ, lambda: control_channel.serve(server, supervisor.answer))
        events.register(deaths, selectors.EVENT_READ, bury)
        events.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.data:
                    key.data()
                elif sys.stdin.buffer.readline() == control_channel.STAY:
                    events.unregister(sys.stdin)
                else:
                    return


def _deaths() -> int:
    """Return the descriptor that becomes readable when a child has ended."""
    ours, signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ours


def _end_all(files: Files) -> None:
    """End every other process of the sandbox, wait until they are gone, and uncover its files."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    for mount in Path("/proc/self/mounts").read_text().splitlines():
        if (place := mount.split()[1]).startswith(f"{files.folder}/"):
            run("umount", place)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
