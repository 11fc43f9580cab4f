"""Where a sandbox keeps its files, and which process holds it up. Touches the disk; starts nothing."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.sandbox.configuration import Plan, check_name
from slurmddp.sandbox.partition_shape import Shape

_PLACE: Final = Path("/tmp")  # noqa: S108  # the same for every session of the user, unlike XDG_RUNTIME_DIR
_KILL_DEADLINE_S: Final = 20


def base() -> Path:
    """Return the folder of all sandboxes of this user."""
    return _PLACE / f"slurmddp-sandbox-{os.getuid()}"


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one of the same number by its start."""

    pid: int
    start: int
    """Clock ticks since the machine's boot."""

    @classmethod
    def current(cls) -> "Process":
        """Return the calling process as /proc numbers it, which may be from outside its own namespace."""
        pid = int(Path("/proc/self").readlink().name)
        return cls(pid, _start(pid) or 0)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return _start(self.pid) == self.start

    def kill(self) -> None:
        """End it at once, and return when it is gone: for the first process of a namespace, with all others."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                _wait_for_end(handle, self.pid)
        finally:
            os.close(handle)


def _wait_for_end(handle: int, pid: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(_KILL_DEADLINE_S * 1000):
        raise SlurmddpError(f"process {pid} does not end {_KILL_DEADLINE_S} s after SIGKILL")


def _start(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat, or None for a process that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


@dataclass(frozen=True)
class Files:
    """Every file of one sandbox."""

    folder: Path

    @classmethod
    def of(cls, name: str) -> "Files":
        """Return the files of the sandbox of that name; raise UsageError for what cannot be a name."""
        check_name(name)
        return cls(base() / name)

    @property
    def plan(self) -> Path:
        """The Plan, as JSON."""
        return self.folder / "plan.json"

    @property
    def process(self) -> Path:
        """The supervisor's Process, as JSON."""
        return self.folder / "process.json"

    @property
    def control(self) -> Path:
        """The socket on which the supervisor takes requests."""
        return self.folder / "control"

    @property
    def bin(self) -> Path:
        """The client programs, for use from outside."""
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        """The interpreter of the programs in `bin`."""
        return self.folder / "python"

    @property
    def empty(self) -> Path:
        """What lies over `bin` inside, where the real programs can be used."""
        return self.folder / "empty"

    @property
    def slurm_conf(self) -> Path:
        """Slurm's configuration; its other files must lie beside it."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def gres_conf(self) -> Path:
        """The GPUs of the nodes."""
        return self.folder / "etc" / "gres.conf"

    @property
    def slurmdbd_conf(self) -> Path:
        """The accounting daemon's configuration."""
        return self.folder / "etc" / "slurmdbd.conf"

    @property
    def hosts(self) -> Path:
        """What lies over /etc/hosts inside."""
        return self.folder / "etc" / "hosts"

    @property
    def passwd(self) -> Path:
        """What lies over /etc/passwd inside, for an ordinary user's sandbox."""
        return self.folder / "etc" / "passwd"

    @property
    def munge_key(self) -> Path:
        """The secret of this cluster alone."""
        return self.folder / "etc" / "munge.key"

    @property
    def munge_socket(self) -> Path:
        """Where munged answers."""
        return self.folder / "munge.socket"

    @property
    def database(self) -> Path:
        """The files of MariaDB."""
        return self.folder / "database"

    @property
    def database_socket(self) -> Path:
        """Where MariaDB answers."""
        return self.folder / "database.socket"

    @property
    def logs(self) -> Path:
        """All logs, a file for each daemon."""
        return self.folder / "log"

    def log(self, daemon: str) -> Path:
        """The log of a daemon by its name, or of the slurmd of a node."""
        if daemon in {"munged", "supervisor"}:
            return self.output(daemon)
        is_node = daemon.startswith("n") and daemon[1:].isdigit()
        return self.logs / (f"slurmd-{daemon}.log" if is_node else f"{daemon}.log")

    def output(self, daemon: str) -> Path:
        """What a daemon printed: all its log, or what it said before it had one."""
        return self.logs / f"{daemon}.out"

    def last_words(self, daemon: str) -> str:
        """Return the last lines that a daemon wrote, for a message of one line, and where they are."""
        for path in (self.log(daemon), self.output(daemon)):
            if path.exists() and (lines := path.read_text(errors="replace").split("\n")[-4:-1]):
                return f"{' | '.join(lines)} ({path})"
        return f"it wrote nothing ({self.logs})"

    def run(self, name: str) -> Path:
        """A file that a daemon keeps while it runs."""
        return self.folder / "run" / name

    def spool(self, node: str) -> Path:
        """The folder in which a node's slurmd keeps its jobs' scripts."""
        return self.folder / "spool" / node

    def gpu(self, number: int) -> Path:
        """The file that stands for a GPU on each node."""
        return self.folder / "dev" / f"nvidia{number}"

    def make(self, plan: Plan) -> None:
        """Make the folders."""
        for folder in ("bin", "empty", "etc", "log", "run", "state", "dev"):
            (self.folder / folder).mkdir(parents=True)
        for node in plan.node_names:
            self.spool(node).mkdir(parents=True)
        self.plan.write_text(json.dumps(asdict(plan)))

    def read_plan(self) -> Plan:
        """Return the plan that the sandbox was made by."""
        fields = json.loads(self.plan.read_bytes())
        return Plan(**fields | {"partitions": tuple(map(_shape, fields["partitions"]))})

    def supervisor(self) -> Process | None:
        """Return the process that holds the sandbox up, or None when there is none."""
        try:
            process = Process(**json.loads(self.process.read_bytes()))
        except FileNotFoundError:
            return None
        return process if process.alive else None

    def hold(self) -> None:
        """Lock the folder for the life of the process: systemd-tmpfiles, which empties /tmp, respects that."""
        fcntl.flock(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)

    def remove(self) -> None:
        """Remove everything, if there is anything."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


def _shape(fields: dict[str, Any]) -> Shape:
    """JSON makes lists of tuples."""
    return Shape(**fields | {key: tuple(map(tuple, fields[key])) for key in ("gpus", "options")})


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Keep other commands of this user from making or ending sandboxes meanwhile.

    Raises ClusterError when the folder of all sandboxes is not this user's own.
    """
    handle = os.open(own_base(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def own_base() -> Path:
    """Return the folder of all sandboxes of this user, made if need be, never somebody else's or a link.

    Raises ClusterError with what stands in its place.
    """
    folder = base()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ClusterError(f"{folder} is not a folder that only you can enter; move it away")
    return folder


def names() -> list[str]:
    """Return the names of this user's sandboxes, those that died included."""
    return sorted(entry.name for entry in own_base().iterdir() if (entry / "plan.json").exists())
