"""A sandbox seen from outside: brought up, asked, ended. Starts processes."""

import contextlib
import datetime as dt
import os
import pwd
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from slurmddp.errors import ClusterError, UsageError
from slurmddp.sandbox import configuration, control_channel, namespaces, preemption, programs, state_directory
from slurmddp.sandbox.configuration import Plan
from slurmddp.sandbox.state_directory import Files

_UP_DEADLINE_S: Final = 120
_NODE_DEADLINE_S: Final = 50
"""How long a node may take, beyond the time after which Slurm takes a silent one for lost."""
_PREEMPT_DEADLINE_S: Final = 30
_POLL_S: Final = 0.05

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sandbox:
    """One sandbox that is up."""

    plan: Plan
    files: Files
    lifeline: int | None = None
    """The descriptor whose end, with this process, ends the sandbox; None for one that stays."""

    def environment(self) -> dict[str, str]:
        """Return the variables that point a process at this cluster: SLURM_CONF and PATH."""
        path = os.pathsep.join([str(self.files.bin), *programs.outside_path()])
        return {"SLURM_CONF": str(self.files.slurm_conf), "PATH": path}

    def down(self) -> None:
        """End everything in it and remove its files."""
        with state_directory.exclusive():
            _end(self.files)
        if self.lifeline is not None:
            with contextlib.suppress(OSError):
                os.close(self.lifeline)

    def kill(self, node: str) -> None:
        """Take a node's power: all its processes are gone at once, and nobody hears them die."""
        self.plan.address(node)
        control_channel.ask(self.files.control, do="kill", node=node)

    def boot(self, node: str) -> None:
        """Switch a node on, unless it is, and return when Slurm can use it.

        Jobs that it had when it was killed must be taken for lost first, as with a machine that boots slowly: else
        Slurm believes for a minute that they run. That takes SlurmdTimeout: 10 s unless the plan says otherwise.

        Raises UsageError when there is no such node and ClusterError when it does not come up.
        """
        self.plan.address(node)
        if self.daemons()["nodes"][node]:
            return
        self._poll_nodes([node], lambda record: not _has_jobs(record), on=False)
        last_start = _slurmd_start(self._node_records()[node])
        while (since := _now()) <= last_start:  # Slurm tells two starts of a node apart by their second
            time.sleep(_POLL_S)
        control_channel.ask(self.files.control, do="boot", node=node)
        self.wait_for_nodes([node], since)

    def cut(self, node: str) -> None:
        """Pull a node's cable out: its processes live on, and neither Slurm nor the other nodes hear from them.

        Raises UsageError when there is no such node and ClusterError when it is off.
        """
        self.plan.address(node)
        control_channel.ask(self.files.control, do="cut", node=node)

    def heal(self, node: str) -> None:
        """Plug a node's cable in again, and return when Slurm can use it.

        Raises UsageError when there is no such node and ClusterError when it is off, or Slurm does not take it back.
        """
        self.plan.address(node)
        control_channel.ask(self.files.control, do="heal", node=node)
        self._poll_nodes([node], _is_usable, on=True)

    def preempt(self, job_id: str) -> None:
        """Let a more urgent job take all nodes of that job, and return when it no longer runs undisturbed.

        The urgent job ends as soon as it has the nodes. Raises UsageError for what is no job id, ClusterError when
        Slurm does not know the job, it does not run, or nothing can preempt it.
        """
        preemption.check_id(job_id)
        job = self._job(job_id)
        preemption.check(job_id, job, self._partitions())
        if preemption.has_begun(job):
            return
        urgent = self._client("sbatch", *preemption.urgent_job(job_id, job)).strip()
        try:
            self._wait_for_preemption(job_id, urgent)
        except BaseException:
            self._client("scancel", urgent)
            raise

    def _wait_for_preemption(self, job_id: str, urgent: str) -> None:
        deadline = time.monotonic() + _PREEMPT_DEADLINE_S
        while not preemption.has_begun(self._job(job_id)):
            if time.monotonic() > deadline:
                reason = self._job(urgent)["Reason"]
                raise ClusterError(
                    f"job {job_id} was not preempted within {_PREEMPT_DEADLINE_S} s: the job that wants its nodes "
                    f"waits for {reason}; does another job hold one of them?"
                )
            time.sleep(_POLL_S)

    def _job(self, job_id: str) -> dict[str, str]:
        records = self._records("job", job_id)
        if len(records) > 1:
            raise UsageError(f"job {job_id} is an array; give one task of it, as in {job_id}_0")
        return records[0]

    def _partitions(self) -> dict[str, dict[str, str]]:
        return {record["PartitionName"]: record for record in self._records("partitions")}

    def daemons(self) -> dict[str, dict[str, bool]]:
        """Return, under `daemons` and `nodes`, which of them run, and under `cut` which nodes are cut off."""
        return control_channel.ask(self.files.control, do="status")

    def node_states(self) -> dict[str, str]:
        """Return each node's state in Slurm's words; raise ClusterError when the controller does not answer."""
        return {name: record["State"] for name, record in self._node_records().items()}

    def _node_records(self) -> dict[str, dict[str, str]]:
        return {record["NodeName"]: record for record in self._records("nodes")}

    def _records(self, *what: str) -> list[dict[str, str]]:
        lines = self._client("scontrol", "--oneliner", "show", *what).splitlines()
        return [dict(_KEY_VALUE.findall(line)) for line in lines if line]

    def _client(self, program: str, *words: str) -> str:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SBATCH_", "SLURM_"))}
        environment = {**inherited, **self.environment(), "SLURM_TIME_FORMAT": "standard"}
        command = [str(self.files.bin / program), *words]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise ClusterError(f"{program} {' '.join(words)}: {result.stderr.strip()}")
        return result.stdout

    def wait_for_nodes(self, names: Iterable[str], since: dt.datetime) -> None:
        """Return when Slurm can use each node, by a slurmd started not before `since`.

        Raises ClusterError when a node or a daemon ends, or when it takes too long.
        """
        self._poll_nodes(names, lambda record: _is_usable(record) and _slurmd_start(record) >= since, on=True)

    def _poll_nodes(self, names: Iterable[str], done: Callable[[dict[str, str]], bool], *, on: bool) -> None:
        """Return when `done` holds for each node; `on` says whether they must run meanwhile."""
        waiting = set(names)
        deadline = time.monotonic() + _NODE_DEADLINE_S + 3 * self.plan.slurmd_timeout_s
        while waiting:
            self._check_daemons(waiting if on else ())
            records = self._node_records()
            waiting = {name for name in waiting if not done(records[name])}
            if waiting and time.monotonic() > deadline:
                name = min(waiting)
                raise ClusterError(f"node {name} is {records[name]['State']}: {self.files.last_words(name)}")
            time.sleep(_POLL_S if waiting else 0)

    def _check_daemons(self, nodes: Iterable[str]) -> None:
        running = self.daemons()
        ended = [name for name, runs in running["daemons"].items() if not runs]
        ended += [name for name in nodes if not running["nodes"][name]]
        if ended:
            raise ClusterError(f"{ended[0]} ended: {self.files.last_words(ended[0])}")


def _now() -> dt.datetime:
    """Return the time in whole seconds and without a zone, as Slurm says it."""
    return dt.datetime.now().replace(microsecond=0)  # noqa: DTZ005  # Slurm's times are local


_KEY_VALUE: Final = re.compile(r"(\w+)=(\S*)")


def _slurmd_start(record: dict[str, str]) -> dt.datetime:
    """Return when the slurmd that Slurm knows of was started; the beginning of time when it knows of none."""
    start = record["SlurmdStartTime"]
    return dt.datetime.min if start == "None" else dt.datetime.fromisoformat(start)  # noqa: DTZ901  # as above


def _is_usable(record: dict[str, str]) -> bool:
    base, *flags = re.split(r"[+*]", record["State"])
    return base in {"IDLE", "MIXED", "ALLOCATED"} and not {"", "NOT_RESPONDING"} & set(flags)


def _has_jobs(record: dict[str, str]) -> bool:
    base, *flags = re.split(r"[+*]", record["State"])
    return base in {"MIXED", "ALLOCATED"} or (base == "IDLE" and "COMPLETING" in flags)


def up(wanted: Plan, *, say: Say = lambda _: None, die_with_parent: bool = False) -> Sandbox:
    """Bring a sandbox up, and return it when all its nodes are idle; `say` is told what comes up.

    With `die_with_parent` it ends when this process does, however that ends; else it stays until `down`.

    Raises UsageError when one of that name is up, and ClusterError when it does not come up; then nothing is left.
    """
    programs.check(accounting=wanted.accounting)
    files = Files.of(wanted.name)
    with state_directory.exclusive():
        if files.supervisor():
            raise UsageError(
                f"sandbox '{wanted.name}' is up already; end it with: slurmddp sandbox down --name {wanted.name}"
                " (or choose another --name)"
            )
        files.remove()
        try:
            return _bring_up(wanted, files, say, die_with_parent=die_with_parent)
        except BaseException:
            files.remove()
            raise


def find(name: str = "default") -> Sandbox | None:
    """Return the sandbox of that name, or None when it is not up."""
    files = Files.of(name)
    return Sandbox(files.read_plan(), files) if files.supervisor() else None


def down(name: str = "default") -> bool:
    """End the sandbox of that name and remove its files; tell whether it was up."""
    with state_directory.exclusive():
        return _end(Files.of(name))


def _end(files: Files) -> bool:
    process = files.supervisor()
    if process:
        process.kill()
    files.remove()
    return process is not None


def _bring_up(wanted: Plan, files: Files, say: Say, *, die_with_parent: bool) -> Sandbox:
    since = _now()
    _write_files(wanted, files)
    supervisor, lifeline = _start_supervisor(files)
    with supervisor:
        try:
            _follow(supervisor, files, say)
            Sandbox(wanted, files).wait_for_nodes(wanted.node_names, since)
        except BaseException:
            os.close(lifeline)
            _end_unborn(supervisor, files)
            raise
    if die_with_parent:
        return Sandbox(wanted, files, lifeline)
    os.write(lifeline, control_channel.STAY)
    os.close(lifeline)
    return Sandbox(wanted, files)


def _start_supervisor(files: Files) -> tuple[subprocess.Popen[bytes], int]:
    """Start it as a daemon; return its output, and the descriptor with whose end it ends too."""
    command = [
        *("setsid", "--fork", *namespaces.unshare(rootless=os.getuid() != 0)),
        *(sys.executable, "-P", "-m", "slurmddp.sandbox.first_process", str(files.folder)),
    ]
    stdin, lifeline = os.pipe()
    try:
        with files.output("supervisor").open("ab") as log:
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=log, cwd="/")
    finally:
        os.close(stdin)
    return process, lifeline


def _end_unborn(supervisor: subprocess.Popen[bytes], files: Files) -> None:
    """End a supervisor whose caller gives up, even one that has not yet said which process it is."""
    if process := files.supervisor():
        process.kill()
    for _ in _lines(supervisor.stdout, time.monotonic() + _UP_DEADLINE_S):
        pass


def _follow(process: subprocess.Popen[bytes], files: Files, say: Say) -> None:
    """Pass on what comes up until all is started; raise ClusterError when the supervisor fails or is too slow."""
    for line in _lines(process.stdout, time.monotonic() + _UP_DEADLINE_S):
        if line == control_channel.READY:
            return
        if line.startswith(control_channel.FAILED):
            raise ClusterError(f"the sandbox did not come up: {line.removeprefix(control_channel.FAILED)}")
        say(line)
    raise ClusterError(f"the sandbox did not come up: {files.last_words('supervisor')}")


def _lines(stream: IO[bytes] | None, deadline: float) -> Iterator[str]:
    """Yield lines until the stream ends or the deadline is over."""
    pending = b""
    while stream and select.select([stream], [], [], max(0, deadline - time.monotonic()))[0]:
        chunk = os.read(stream.fileno(), 4096)
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line.decode() for line in lines)
        if not chunk:
            return


def _write_files(wanted: Plan, files: Files) -> None:
    files.make(wanted)
    files.python.symlink_to(Path(sys.executable).resolve())
    files.slurm_conf.write_text(configuration.slurm_conf(wanted, files.folder, configuration.first_job_id(time.time())))
    files.gres_conf.write_text(configuration.gres_conf(wanted, files.folder))
    files.hosts.write_text(configuration.hosts(wanted, Path("/etc/hosts").read_text()))
    files.munge_key.touch(mode=0o600)
    files.munge_key.write_bytes(os.urandom(1024))
    user = pwd.getpwuid(os.getuid())
    if wanted.accounting:
        files.slurmdbd_conf.touch(mode=0o600)
        files.slurmdbd_conf.write_text(configuration.slurmdbd_conf(wanted, files.folder, user.pw_name))
    for number in range(wanted.most_gpus):
        files.gpu(number).touch()
    if os.getuid():
        entry = f"{user.pw_gecos}:{user.pw_dir}:{user.pw_shell}"
        files.passwd.write_text(configuration.passwd(user.pw_name, entry, Path("/etc/passwd").read_text()))
