"""Starts, queries and ends a sandbox from outside. Starts processes."""

import contextlib
import datetime as dt
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from slurmddp.errors import ClusterError, UsageError
from slurmddp.sandbox import configuration, control_channel, preemption, programs, state_directory
from slurmddp.sandbox.configuration import Plan
from slurmddp.sandbox.state_directory import Files
from slurmddp.slurm import client, commands
from slurmddp.slurm.values import Record, parse_record

_UP_DEADLINE_S: Final = 120
"""A start that takes longer is ended, and its log is shown."""
_NODE_DEADLINE_S: Final = 50
"""Time for a node to become usable, in addition to three times SlurmdTimeout."""
_POLL_S: Final = 0.05
_JOBS: Final = re.compile(r"(MIXED|ALLOCATED)\b.*|IDLE\b.*\bCOMPLETING\b.*")
"""The states of a node that has jobs."""

Say = Callable[[str], None]


class Sandbox(NamedTuple):
    """One sandbox that is up."""

    plan: Plan
    files: Files
    keepalive: int | None = None
    """A descriptor: the sandbox ends when this process closes it or ends; None for a sandbox that stays."""

    def environment(self) -> dict[str, str]:
        """Return the variables with which a process uses this cluster: SLURM_CONF and PATH."""
        path = os.pathsep.join([str(self.files.bin), *programs.outside_path()])
        return {"SLURM_CONF": str(self.files.slurm_conf), "PATH": path}

    def down(self) -> None:
        """End all its processes and remove its files."""
        down(self.plan.name)
        if self.keepalive is not None:
            with contextlib.suppress(OSError):
                os.close(self.keepalive)

    def kill(self, node: str) -> None:
        """Switch a node off: all its processes end at once, and send no message.

        As all methods for one node, it raises UsageError when there is no such node.
        """
        self._request("kill", node)

    def boot(self, node: str) -> None:
        """Switch a node on, unless it is on, and return when Slurm can use it.

        This first waits until Slurm has given up the jobs that ran there when the node was killed, as happens with a
        machine that boots slowly. Otherwise Slurm believes for a minute that they still run. The wait is SlurmdTimeout:
        10 s unless the plan says otherwise.

        Raises ClusterError when it does not start.
        """
        self.plan.address(node)
        if self.daemons()["nodes"][node]:
            return
        self._poll_nodes([node], lambda record: not _JOBS.fullmatch(record["State"]), on=False)
        last_start = _slurmd_start(self.node_records()[node])
        while (since := _now()) <= last_start:  # Slurm records the start of slurmd in whole seconds
            time.sleep(_POLL_S)
        self._request("boot", node)
        self.wait_for_nodes([node], since)

    def disconnect(self, node: str) -> None:
        """Disconnect a node from Slurm and from the other nodes; its processes continue.

        Raises ClusterError when it is off.
        """
        self._request("disconnect", node)

    def reconnect(self, node: str) -> None:
        """Connect a node to the network again, and return when Slurm can use it.

        Raises ClusterError when it is off or does not become usable.
        """
        self._request("reconnect", node)
        self._poll_nodes([node], _is_usable, on=True)

    def _request(self, action: str, node: str) -> None:
        self.plan.address(node)  # which refuses a node that there is not
        control_channel.send_request(self.files.control, do=action, node=node)

    def preempt(self, job_id: str) -> None:
        """Preempt that job by one of higher priority; return, and raise, as `preemption.preempt` does."""
        preemption.preempt(job_id, os.environ | self.environment())

    def daemons(self) -> dict[str, dict[str, bool]]:
        """Return which `daemons` and `nodes` run, and which nodes are `disconnected`."""
        return control_channel.send_request(self.files.control, do="status")

    def node_records(self) -> dict[str, Record]:
        """Return what Slurm shows of each node; raise ClusterError when the controller does not answer."""
        shown = client.query(commands.show("nodes"), os.environ | self.environment())
        return {record["NodeName"]: record for record in map(parse_record, shown.splitlines()) if record}

    def wait_for_nodes(self, names: Iterable[str], since: dt.datetime) -> None:
        """Return when Slurm can use each node through a slurmd that was started at `since` or later.

        Raises ClusterError when a node or a daemon ends, or when it takes too long.
        """
        self._poll_nodes(names, lambda record: _is_usable(record) and _slurmd_start(record) >= since, on=True)

    def _poll_nodes(self, names: Iterable[str], done: Callable[[Record], bool], *, on: bool) -> None:
        """Return when `done` is true for each node; with `on`, raise ClusterError for a node that ends meanwhile."""
        waiting = set(names)
        deadline = time.monotonic() + _NODE_DEADLINE_S + 3 * self.plan.slurmd_timeout_s
        while waiting:
            running = self.daemons()
            ended = [name for name, runs in running["daemons"].items() if not runs]
            ended += [name for name in waiting if on and not running["nodes"][name]]
            if ended:
                raise ClusterError(f"{ended[0]} ended: {self.files.last_log_lines(ended[0])}")
            records = self.node_records()
            waiting = {name for name in waiting if not done(records[name])}
            if waiting and time.monotonic() > deadline:
                name = min(waiting)
                raise ClusterError(f"node {name} is {records[name]['State']}: {self.files.last_log_lines(name)}")
            time.sleep(_POLL_S if waiting else 0)


def _now() -> dt.datetime:
    """Return the local time in whole seconds without a time zone, as Slurm prints it."""
    return dt.datetime.now().replace(microsecond=0)  # noqa: DTZ005  # Slurm's times are local


def _slurmd_start(record: Record) -> dt.datetime:
    """Return when the node's slurmd was started; datetime.min when Slurm knows of none."""
    start = record["SlurmdStartTime"]
    return dt.datetime.min if start == "None" else dt.datetime.fromisoformat(start)  # noqa: DTZ901  # as above


def _is_usable(record: Record) -> bool:
    base, *flags = re.split(r"[+*]", record["State"])
    return base in {"IDLE", "MIXED", "ALLOCATED"} and not {"", "NOT_RESPONDING"} & set(flags)


def up(plan: Plan, *, say: Say = lambda _: None, die_with_parent: bool = False) -> Sandbox:
    """Start a sandbox, and return it when all its nodes are idle; `say` gets the name of each part that starts.

    With `die_with_parent` it ends when this process ends in any way; otherwise it stays until `down`.

    Raises UsageError when one of that name is up, and ClusterError when it does not start; then no file is left.
    """
    programs.check_machine(accounting=plan.accounting)
    files = Files.of_sandbox(plan.name)
    with state_directory.exclusive():
        if files.supervisor():
            raise UsageError(
                f"sandbox '{plan.name}' is already up; give another --name, or use it, by typing: "
                f'eval "$(slurmddp sandbox env --name {plan.name})"'
            )
        files.remove()
        try:
            return _start(plan, files, say, die_with_parent=die_with_parent)
        except BaseException as error:
            files.remove()
            if isinstance(error, ClusterError):
                removed = rf" \({re.escape(str(files.folder))}\S*\)"
                raise ClusterError(re.sub(removed, "", str(error))) from error
            raise


def find(name: str = "default") -> Sandbox | None:
    """Return the sandbox of that name, or None when it is not up."""
    files = Files.of_sandbox(name)
    return Sandbox(files.read_plan(), files) if files.supervisor() else None


def report(name: str = "default") -> dict[str, Any]:
    """Return the state of the sandbox of that name, as `sandbox status --json` prints it.

    `up` is whether it is up, `others` are this user's other sandboxes. Each of the `nodes` and `daemons` has a name, a
    state and a log. The state of a daemon is `running` or `ended`, that of a node `off` or Slurm's state, with `(cut)`
    when it is disconnected. Raises ClusterError when the sandbox is up and does not answer.
    """
    others = [other for other in state_directory.names() if other != name]
    folder, sandbox = str(Files.of_sandbox(name).folder), find(name)
    found = {"name": name, "up": False, "folder": folder, "nodes": [], "daemons": [], "others": others}
    if sandbox is None:
        return found
    running = sandbox.daemons()
    records = sandbox.node_records() if running["daemons"]["slurmctld"] else {}
    cut = {node: " (cut)" if is_cut else "" for node, is_cut in running["disconnected"].items()}
    said = {node: records[node]["State"] if node in records else "UNKNOWN" for node in cut}
    nodes = {node: (said[node] if is_on else "off") + cut[node] for node, is_on in running["nodes"].items()}
    daemons = {daemon: "running" if runs else "ended" for daemon, runs in running["daemons"].items()}

    def parts(states: Mapping[str, str]) -> list[dict[str, str]]:
        return [{"name": one, "state": state, "log": str(sandbox.files.log(one))} for one, state in states.items()]

    return found | {"up": True, "nodes": parts(nodes), "daemons": parts(daemons)}


def down(name: str = "default") -> bool:
    """End the sandbox of that name, or what a crash has left of it; tell whether it was up."""
    files = Files.of_sandbox(name)
    with state_directory.exclusive():
        was_up = _kill_supervisor(files)
        files.remove()
    return was_up


def _kill_supervisor(files: Files) -> bool:
    """Kill the process of the sandbox, and with it all of its daemons; tell whether there was one."""
    if process := files.supervisor():
        process.kill()
    return process is not None


def _start(plan: Plan, files: Files, say: Say, *, die_with_parent: bool) -> Sandbox:
    since = _now()
    _write_files(plan, files)
    supervisor, keepalive = _start_supervisor(files)
    with supervisor, cast("IO[bytes]", supervisor.stdout) as reports:
        limit = threading.Timer(_UP_DEADLINE_S, _kill_supervisor, (files,))
        limit.daemon = True
        limit.start()
        try:
            _wait_until_ready(reports, files, say)
            limit.cancel()
            Sandbox(plan, files).wait_for_nodes(plan.node_names, since)
        except BaseException:
            limit.cancel()
            os.close(keepalive)
            _kill_supervisor(files)
            reports.read()  # its end is that of a supervisor that has not yet written its pid, too
            raise
    if die_with_parent:
        return Sandbox(plan, files, keepalive)
    os.write(keepalive, control_channel.STAY)
    os.close(keepalive)
    return Sandbox(plan, files)


def _start_supervisor(files: Files) -> tuple[subprocess.Popen[bytes], int]:
    """Start it as a daemon; return the process, and the descriptor that ends it when it is closed."""
    command = [
        *("setsid", "--fork", *programs.unshare(rootless=os.getuid() != 0)),
        *(sys.executable, "-P", "-m", "slurmddp.sandbox.first_process", str(files.folder)),
    ]
    stdin, keepalive = os.pipe()
    try:
        with files.output("supervisor").open("ab") as log:
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=log, cwd="/")  # noqa: S603 - words of our own
    finally:
        os.close(stdin)
    return process, keepalive


def _wait_until_ready(reports: IO[bytes], files: Files, say: Say) -> None:
    """Report each part that starts until all have; raise ClusterError when the supervisor fails or ends."""
    for line in (raw.decode().rstrip("\n") for raw in reports):
        if line == control_channel.READY:
            return
        if line.startswith(control_channel.FAILED):
            if unknown := re.search(r"slurmctld ended: .*unrecognized key: (\w+)", line):
                raise UsageError(f"Slurm has no option '{unknown[1]}'; see --partition, --slurm-conf and --etc")
            raise ClusterError(f"the sandbox did not start: {line.removeprefix(control_channel.FAILED)}")
        say(line)
    raise ClusterError(f"the sandbox did not start: {files.last_log_lines('supervisor')}")


def _write_files(plan: Plan, files: Files) -> None:
    files.make(plan)
    files.python.symlink_to(Path(sys.executable).resolve())
    files.slurm_conf.write_text(configuration.slurm_conf(plan, files.folder, configuration.first_job_id(time.time())))
    files.gres_conf.write_text(configuration.gres_conf(plan, files.folder))
    files.cgroup_conf.write_text(configuration.cgroup_conf(programs.slurm_version()))
    for path in plan.etc:
        shutil.copy(path, files.slurm_conf.parent)
    files.hosts.write_text(configuration.hosts(plan, Path("/etc/hosts").read_text()))
    files.munge_key.touch(mode=0o600)
    files.munge_key.write_bytes(os.urandom(1024))
    user = pwd.getpwuid(os.getuid())
    if plan.accounting:
        files.slurmdbd_conf.touch(mode=0o600)
        files.slurmdbd_conf.write_text(configuration.slurmdbd_conf(plan, files.folder, user.pw_name))
    for number in range(plan.most_gpus):
        files.gpu(number).touch()
    if os.getuid():
        entry = f"{user.pw_gecos}:{user.pw_dir}:{user.pw_shell}"
        files.passwd.write_text(configuration.passwd(user.pw_name, entry, Path("/etc/passwd").read_text()))
