"""The files of a sandbox, and the process that runs it. Touches the disk; starts no process."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from slurmddp.background import wait_until
from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.sandbox.configuration import Plan, check_name

_PLACE: Final = Path("/tmp")  # noqa: S108  # the same for every session of the user, unlike XDG_RUNTIME_DIR
_KILL_DEADLINE_S: Final = 20
_POLL_S: Final = 0.01


def base_folder() -> Path:
    """Return the folder of all sandboxes of this user."""
    return _PLACE / f"slurmddp-sandbox-{os.getuid()}"


class Process(NamedTuple):
    """A process; its start time tells it from a later process with the same pid."""

    pid: int
    start: int
    """Clock ticks since the machine's boot."""

    @classmethod
    def current(cls) -> "Process":
        """Return the calling process with its pid in /proc, which may belong to an outer namespace."""
        pid = int(Path("/proc/self").readlink().name)
        return cls(pid, _start(pid) or 0)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return _start(self.pid) == self.start

    def kill(self) -> None:
        """End it at once, and return when it has ended; with the first process of a namespace, all others end."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if not wait_until(lambda: not self.alive, _KILL_DEADLINE_S, _POLL_S):
            raise SlurmddpError(f"process {self.pid} does not end {_KILL_DEADLINE_S} s after SIGKILL")


def _start(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat, or None for a process that has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in {b"Z", b"X"} else int(fields[19])
    return None


class Files:
    """Every file of one sandbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = folder / "plan.json"
        self.process = folder / "process.json"
        """The supervisor's Process."""
        self.control = folder / "control"
        """The socket on which the supervisor takes requests."""
        self.bin = folder / "bin"
        """The client programs, for use outside."""
        self.empty = folder / "empty"
        """Mounted over `bin` inside, where the real programs can be used."""
        self.python = folder / "python"
        """The interpreter of the programs in `bin`."""
        etc = folder / "etc"
        self.slurm_conf = etc / "slurm.conf"
        self.gres_conf = etc / "gres.conf"
        self.cgroup_conf = etc / "cgroup.conf"
        self.slurmdbd_conf = etc / "slurmdbd.conf"
        self.hosts = etc / "hosts"
        """Mounted over /etc/hosts inside."""
        self.passwd = etc / "passwd"
        """Mounted over /etc/passwd inside, in an ordinary user's sandbox."""
        self.munge_key = etc / "munge.key"
        self.munge_socket = folder / "munge.socket"
        self.database = folder / "database"
        self.database_socket = folder / "database.socket"
        self.logs = folder / "log"

    @classmethod
    def of_sandbox(cls, name: str) -> "Files":
        """Return the files of the sandbox of that name; raise UsageError when no sandbox can have it."""
        check_name(name)
        return cls(base_folder() / name)

    def log(self, daemon: str) -> Path:
        """Return the log of a daemon, or of the slurmd of a node, by name."""
        if daemon in {"munged", "supervisor"}:
            return self.output(daemon)
        is_node = daemon.startswith("n") and daemon[1:].isdigit()
        return self.logs / (f"slurmd-{daemon}.log" if is_node else f"{daemon}.log")

    def output(self, daemon: str) -> Path:
        """Return the file of a daemon's output: its whole log, or what it printed before it opened its log."""
        return self.logs / f"{daemon}.out"

    def last_log_lines(self, daemon: str) -> str:
        """Return the last lines of a daemon and their file, as one line for a message."""
        for path in (self.log(daemon), self.output(daemon)):
            if path.exists() and (lines := path.read_text(errors="replace").split("\n")[-4:-1]):
                return f"{' | '.join(lines)} ({path})"
        return f"it wrote nothing ({self.logs})"

    def gpu(self, number: int) -> Path:
        """Return the file that stands for a GPU on each node."""
        return self.folder / "dev" / f"nvidia{number}"

    def make(self, plan: Plan) -> None:
        """Make the folders."""
        for folder in ("bin", "empty", "etc", "log", "run", "state", "dev"):
            (self.folder / folder).mkdir(parents=True)
        for node in plan.node_names:
            (self.folder / "spool" / node).mkdir(parents=True)
        self.plan.write_bytes(msgspec.json.encode(plan))

    def read_plan(self) -> Plan:
        """Return the plan of the sandbox."""
        return msgspec.json.decode(self.plan.read_bytes(), type=Plan)

    def supervisor(self) -> Process | None:
        """Return the first process of the sandbox, or None when the sandbox is not up."""
        with contextlib.suppress(FileNotFoundError):
            process = Process(**json.loads(self.process.read_bytes()))
            return process if process.alive else None
        return None

    def remove(self) -> None:
        """Remove the folder, if it exists."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Prevent other commands of this user from starting or ending sandboxes meanwhile.

    Raises ClusterError when the folder of all sandboxes is not this user's own.
    """
    handle = os.open(ensure_base_folder(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def ensure_base_folder() -> Path:
    """Return the folder of all sandboxes of this user; create it if it is missing.

    Raises ClusterError when something else has its name, as another user's folder or a link.
    """
    folder = base_folder()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ClusterError(f"{folder} is not a folder that only you can enter; move it away")
    return folder


def names() -> list[str]:
    """Return the names of this user's sandboxes, including those that have crashed."""
    return sorted(entry.name for entry in ensure_base_folder().iterdir() if (entry / "plan.json").exists())


def current_name() -> str:
    """Return the name of the sandbox that SLURM_CONF belongs to if it is one of this user's, else the default."""
    folder = Path(os.environ.get("SLURM_CONF", "")).parent.parent
    return folder.name if folder.parent == base_folder() else Plan().name
