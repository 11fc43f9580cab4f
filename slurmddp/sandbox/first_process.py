"""The first process of a sandbox, inside its namespaces: starts the daemons and nodes, and answers requests.

`slurmddp.sandbox.up` starts it as `python -m slurmddp.sandbox.first_process FOLDER`. It holds the other end of standard
input. When that ends before the line STAY, the sandbox ends and leaves no files. Standard output reports the start: a
line for each daemon and node.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO

from slurmddp.errors import ClusterError
from slurmddp.sandbox import control_channel, daemons, namespaces, programs
from slurmddp.sandbox.configuration import HEAD
from slurmddp.sandbox.node import Node, make_network
from slurmddp.sandbox.programs import run_command
from slurmddp.sandbox.state_directory import Files, Process
from slurmddp.slurm import client, commands

_DEADLINE_S: Final = 60
_POLL_S: Final = 0.02
_REAP_S: Final = 1.0


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
        make_network()
        self._start("munged", daemons.munged(self.files), self.files.munge_socket)
        if self.plan.accounting:
            self._start_accounting()
        self._start("slurmctld", daemons.slurmctld(), commands.PING)
        for name, node in self.nodes.items():
            _print_line(name)
            node.boot()

    def handle_request(self, request: dict[str, str]) -> dict[str, Any]:
        """Do what a request asks for; return which daemons and nodes run then, and which nodes are disconnected."""
        actions = {"boot": Node.boot, "kill": Node.kill, "disconnect": Node.disconnect, "reconnect": Node.reconnect}
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

    def reap(self) -> None:
        """Collect the exit statuses of ended processes; the first process of a namespace inherits all orphans."""
        for process in (*self.daemons.values(), *(node.process for node in self.nodes.values())):
            if process:
                process.poll()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _write_clients(self) -> None:
        outside = Process.current()
        options = namespaces.nsenter_options(outside, rootless=self.files.passwd.exists())
        enter = [programs.find("nsenter") or "nsenter", *options]
        for name, place in programs.clients().items():
            stand_in = self.files.bin / name
            stand_in.write_text(
                namespaces.client_program(
                    python=self.files.python,
                    program=place,
                    enter=enter,
                    target=outside,
                    slurm_conf=self.files.slurm_conf,
                )
            )
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
        _print_line("database")
        run_command(*daemons.make_database(self.files))
        self._start("mariadbd", daemons.mariadbd(self.files), self.files.database_socket)
        self._start("slurmdbd", daemons.slurmdbd(self.files), commands.list_accounts("cluster", columns="Cluster"))
        client.order(commands.add_cluster(self.plan.cluster), os.environ)

    def _start(self, name: str, command: list[str], test: Path | Sequence[str]) -> None:
        """Start a daemon; return when its socket `test` is there, or Slurm's program `test` gets an answer from it."""
        _print_line(name)
        with self.files.output(name).open("ab") as output:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.daemons[name] = daemon
        deadline = time.monotonic() + _DEADLINE_S
        while said := _why_not_ready(test):
            if daemon.poll() is not None:
                raise ClusterError(f"{name} ended: {self.files.last_log_lines(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} does not answer: {said} ({self.files.log(name)})")
            time.sleep(_POLL_S)


def _why_not_ready(test: Path | Sequence[str]) -> str:
    if isinstance(test, Path):
        return "" if test.is_socket() else f"there is no {test}"
    answer = client.ask(test, os.environ)
    return answer.reason if answer.status else ""


def main() -> None:
    """Start a sandbox and serve it; return when the caller ends without asking for it to stay."""
    if os.getpid() != 1:
        sys.exit("this is the first process of a sandbox; type: slurmddp sandbox up")
    files = Files(Path(sys.argv[1]))
    files.process.write_text(json.dumps(asdict(Process.current())))
    files.lock_folder()
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
        supervisor.reap()
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


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
