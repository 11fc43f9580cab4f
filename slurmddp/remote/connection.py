"""The connection to another machine: one of OpenSSH, which all commands share. ssh itself asks for passwords."""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.script.git import find_work_tree
from slurmddp.script.quoting import shell
from slurmddp.text import quote_value
from slurmddp.version import __version__

PROGRAM: Final = f".slurmddp/{__version__}/bin/slurmddp"
"""Where `setup` puts slurmddp, below --remote-dir."""
_NAME: Final = re.compile(r"(?!-|.*@-)[^\s\x00-\x1f\x7f:/'\"`$&;<>|(){}]+")
"""No option, no address that rsync reads otherwise, and nothing that a ProxyCommand would give to a shell."""
_SSH: Final = ("ssh", "-a", "-x", "-oClearAllForwardings=yes", "-oRemoteCommand=none", "-oControlMaster=no")
_OPEN: Final = ("-oControlMaster=yes", "-oControlPersist=600", "-oServerAliveInterval=15", "-oConnectTimeout=30")


class Host(NamedTuple):
    """Another machine, and the project on this one."""

    name: str
    folder: str
    """--remote-dir: relative to the home directory there, or absolute."""
    typed: str
    """The options before the command by which the user named it, quoted, each word with a space behind it."""
    top: Path
    """The work tree, or else the working directory."""
    ssh: tuple[str, ...]

    @classmethod
    def connect(cls, name: str, folder: str, typed: Sequence[str]) -> "Host":
        """Use the user's own shared connection if one is open, else ours.

        Raises UsageError for a wrong name, SlurmddpError for a missing program, ClusterError if ssh fails.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f"--host: {quote_value(name)} is not the name of a machine; give what you type behind ssh")
        if missing := [program for program in ("ssh", "rsync") if not shutil.which(program)]:
            raise SlurmddpError(f"this machine has no {' and no '.join(missing)}, which --host needs; install it here")
        sockets = Path(os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache", "slurmddp")
        sockets.mkdir(parents=True, exist_ok=True)
        sockets.chmod(0o700)  # fails if it is of another user
        folder, top = str(PurePosixPath(re.sub("^~(/|$)", "./", folder))), find_work_tree(Path.cwd()) or Path.cwd()
        theirs = cls(name, folder, "".join(f"{shell(word)} " for word in typed), top.resolve(), _SSH)
        ours = theirs._replace(ssh=(*_SSH, "-S", f"{sockets}/%C"))
        if connected := next(filter(Host.is_connected, (ours, theirs)), None):
            return connected
        import tempfile  # noqa: PLC0415 slow to load

        with tempfile.TemporaryFile() as said:  # no pipe: the connection stays open in the background
            words = ["ssh", *_OPEN, *ours.ssh[1:], "-T", "-n", "--", name, "true"]
            status = subprocess.run(words, stdout=said, stderr=said, check=False).returncode  # noqa: S603 no shell
            said.seek(0)
            why = b" ".join(said.read().splitlines()[-2:]).decode("utf-8", "replace")
        if status == 255:  # noqa: PLR2004 ssh's own
            raise ClusterError(f"{name} cannot be reached: {why}; first make this work: ssh {name}")
        return ours

    def is_connected(self) -> bool:
        """Return whether the shared connection is open."""
        words = [*self.ssh, "-O", "check", "--", self.name]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0  # noqa: S603 no shell

    def slurmddp(self, words: Sequence[str], *, capture: bool = False) -> tuple[int, str]:
        """Run slurmddp in the folder there that stands for this one; return its status, and the captured output."""
        place = self.top.name / Path.cwd().resolve().relative_to(self.top)
        missing = f"Error: {self.name} has no slurmddp {__version__}"
        advice = f"; type: slurmddp {self.typed}setup --yes"
        others = "others=$(echo $(ls .slurmddp 2>/dev/null)); others=${others:+, but $others}"
        script = (
            f"cd -- {shell(self.folder)} 2>/dev/null && [ -x {PROGRAM} ] || "
            f'{{ {others}; echo {shell(missing)}"$others"{shell(advice)} >&2; exit {ClusterError.exit_status}; }}; '
            f"program=$PWD/{PROGRAM}; cd -- ./{shell(place)} 2>/dev/null; "
            f"{'NO_COLOR=1 ' * bool(os.environ.get('NO_COLOR'))}"
            f'exec "$program" --over-ssh {self.typed}{shell(words)}'
        )
        is_terminal = not capture and all(one and one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr))
        command = [*self.ssh, "-q", "-t" if is_terminal else "-T", "--", self.name, _as_login(script)]
        done = self._run(command, stdout=subprocess.PIPE if capture else None)
        return done.returncode, os.fsdecode(done.stdout or b"").rstrip("\n")

    def run(self, script: str, given: bytes = b"") -> str:
        """Run a script there with this input, and return its output. Raises ClusterError when it fails."""
        return self._finish([*self.ssh, "-T", "--", self.name, _as_login(script)], given)

    def rsync(self, folder: str, *words: str, given: bytes = b"") -> None:
        """Run rsync with these words, in which `HOST:` is a folder there. Raises ClusterError when it fails."""
        missing = shell("rsync is not found; install it there, or load its module in ~/.bash_profile there")
        script = f'cd -- {shell(folder)} && {{ command -v rsync >/dev/null || echo {missing} >&2; }} && exec rsync "$@"'
        words = tuple(f"{self.name}:./{word[5:]}" if word.startswith("HOST:") else word for word in words)
        self._finish(["rsync", "-rlpt", "-e", shlex.join(self.ssh), f"--rsync-path={_as_login(script)}", *words], given)

    def _finish(self, words: Sequence[str], given: bytes) -> str:
        done = self._run(words, input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            lines = (done.stderr.decode("utf-8", "replace").strip() or f"{words[0]} failed").splitlines()
            said = next((line for line in lines if line.startswith("ERROR: ")), lines[0])  # pip's; before it warns
            raise ClusterError(f"{self.name}: {said}; to look at it, type: ssh {self.name}")
        return os.fsdecode(done.stdout)

    def _run(self, words: Sequence[str], **streams: Any) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(words, check=False, **streams)  # noqa: S603 no shell
        if done.returncode and not self.is_connected():
            why = f"the connection to {self.name} was lost"
            raise ClusterError(f"{why}; what was done there is shown by: slurmddp {self.typed}status")
        return done


def _as_login(script: str) -> str:
    """Return what runs a bash script as after a login, but for what start-up files print; words behind it are $@."""
    inner = f"exec bash -lc {shell(f'{{ unset CDPATH; {script}; }} >&3 2>&4 3>&- 4>&-')}"
    return "exec bash -c " + shlex.quote(f'exec 3>&1 4>&2 >/dev/null 2>&1; {inner} bash "$@"') + " bash"


def begin() -> None:
    """Let this process, which ssh has started, end with the connection, and its jobs run copies of the code.

    A terminal sends SIGHUP itself. A submission holds it back until its job is recorded.
    """
    if not {"manual", "--launcher=manual"} & {*sys.argv}:
        os.environ.setdefault("SLURMDDP_SNAPSHOT", "true")
    if not sys.stdout.isatty():
        threading.Thread(target=_end_with_output, daemon=True).start()


def _end_with_output() -> None:
    """Send SIGHUP to this process and its children when no process reads the output any more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread may hold it back
    poll = select.poll()
    poll.register(1, 0)
    poll.poll()
    os.killpg(0, signal.SIGHUP)
