"""The connection to another machine: one of OpenSSH, which all commands share. ssh itself asks for passwords."""

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.script.quoting import shell
from slurmddp.text import quote_value
from slurmddp.version import __version__

_SAFE: Final = ("-a", "-x", "-oClearAllForwardings=yes", "-oRemoteCommand=none")
_SHARED: Final = ("-oControlMaster=auto", "-oControlPersist=600", "-oServerAliveInterval=15", "-oConnectTimeout=30")
_CAUSES: Final = ("No space left", "Disk quota exceeded", "not found", "rror:")
"""Of several lines of an error, the first with one of these says what is wrong."""


class Host(NamedTuple):
    """Another machine: its name, --remote-dir there, and ssh with its options."""

    name: str
    folder: str
    ssh: tuple[str, ...]

    @classmethod
    def connect(cls, name: str, folder: str) -> "Host":
        """Open the connection unless it is open. Raises UsageError for a wrong name, ClusterError if ssh fails."""
        if not name.isprintable() or name != name.strip() or name.startswith("-"):
            raise UsageError(f"--host: {quote_value(name)} is not the name of a machine; give what you type behind ssh")
        if missing := [program for program in ("ssh", "rsync") if not shutil.which(program)]:
            raise SlurmddpError(f"{' and '.join(missing)} is not on this machine, and --host needs it; install it")
        host = cls(name, folder.removeprefix("~/").rstrip("/") or ".", ("ssh", *_SAFE, *_sharing(name)))
        if not host.is_connected():
            with tempfile.TemporaryFile() as said:  # no pipe: the connection stays open in the background
                words = [*host.ssh, "-T", "-n", "--", name, "true"]
                status = subprocess.run(words, stdout=said, stderr=said, check=False).returncode  # noqa: S603 no shell
                said.seek(0)
                why = " ".join(said.read().decode("utf-8", "replace").split())
            if status == 255:  # noqa: PLR2004 ssh's own
                raise ClusterError(f"{name} cannot be reached: {why}; first make this work: ssh {name}")
        return host

    def is_connected(self) -> bool:
        """Return whether the shared connection is open."""
        words = [*self.ssh, "-O", "check", "--", self.name]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0  # noqa: S603 no shell

    def slurmddp(self, place: str, words: Sequence[str], *, capture: bool = False) -> tuple[int, str]:
        """Run slurmddp in a folder below --remote-dir, if there is one; return its status, and the captured output."""
        missing = f"Error: {self.name} has no slurmddp; type: slurmddp --host {self.name} setup --yes"
        script = (
            f"{self.find_slurmddp}; cd -- {shell(place)} 2>/dev/null; "
            f'[ -n "$found" ] || {{ echo {shell(missing)} >&2; exit {ClusterError.exit_status}; }}; '
            f"{'NO_COLOR=1 ' * bool(os.environ.get('NO_COLOR'))}"
            f'exec "$found" --over-ssh {__version__} {shell(self.name)} {shell(words)}'
        )
        is_terminal = not capture and all(one and one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr))
        command = [*self.ssh, "-q", "-t" if is_terminal else "-T", "--", self.name, _as_login(script)]
        done = subprocess.run(command, stdout=subprocess.PIPE if capture else None, check=False)  # noqa: S603 no shell
        self._check(done.returncode)
        return done.returncode, os.fsdecode(done.stdout or b"").rstrip("\n")

    @property
    def find_slurmddp(self) -> str:
        """The beginning of a script: goes to --remote-dir and finds slurmddp, first that of `setup`."""
        return (
            f"cd -- {shell(self.folder)} 2>/dev/null; found=$PWD/.slurmddp/{__version__}/bin/slurmddp; "
            '[ -x "$found" ] || found=$(command -v slurmddp)'
        )

    def run(self, script: str, given: bytes = b"") -> str:
        """Run a script there with this input, and return its output. Raises ClusterError when it fails."""
        return self._finish([*self.ssh, "-T", "--", self.name, _as_login(script)], given)

    def rsync(self, folder: str, *words: str, given: bytes = b"") -> None:
        """Run rsync with these words, in which `HOST:` is a folder there. Raises ClusterError when it fails."""
        there = f"--rsync-path=cd -- {shell(folder)} && rsync"  # old versions do not quote the folder behind HOST:
        words = tuple(word.replace("HOST:", f"{self.name}:./") for word in words)
        self._finish(["rsync", "-rlpt", "-e", " ".join(self.ssh), there, *words], given)

    def _finish(self, words: Sequence[str], given: bytes) -> str:
        done = subprocess.run(words, input=given, capture_output=True, check=False)  # noqa: S603 no shell
        if done.returncode:
            self._check(done.returncode)
            lines = done.stderr.decode("utf-8", "replace").splitlines() or [f"{words[0]} failed"]
            said = next((line for line in lines if any(cause in line for cause in _CAUSES)), lines[0])
            raise ClusterError(f"{self.name}: {said.strip()}; to look at it, type: ssh {self.name}")
        return os.fsdecode(done.stdout)

    def _check(self, status: int) -> None:
        if status and not self.is_connected():
            again = f"slurmddp --host {self.name} status"
            raise ClusterError(f"the connection to {self.name} was lost; what was done there is shown by: {again}")


def _sharing(name: str) -> list[str]:
    """Return the options by which commands share a connection: none if one is open by the user's own configuration."""
    if not subprocess.run(["ssh", "-O", "check", "--", name], capture_output=True, check=False).returncode:  # noqa: S603, S607
        return []
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache", "slurmddp")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [*_SHARED, f"-oControlPath={folder}/%C"]


def _as_login(script: str) -> str:
    """Return what runs a bash script as after a login, whatever the shell there; what start-up files print is lost."""
    inner = f"exec bash -lc {shell(f'{{ {script}; }} >&3 2>&4 3>&- 4>&-')}"
    return f"exec bash -c {shlex.quote(f'exec 3>&1 4>&2 >/dev/null 2>&1; {inner}')}"


def begin(version: str, host: str) -> None:
    """Let this process, which ssh has started, end with the connection. Raises ClusterError for another version there.

    A terminal sends SIGHUP itself. A submission holds it back until its job is recorded.
    """
    if version != __version__:
        what = f"{host} has slurmddp {__version__}, and {version} is here"
        raise ClusterError(f"{what}; type: slurmddp --host {host} setup --yes")
    if not sys.stdout.isatty():
        threading.Thread(target=_end_with_output, daemon=True).start()


def _end_with_output() -> None:
    """Send SIGHUP to this process and its children when no process reads the output any more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread may hold it back
    poll = select.poll()
    poll.register(1, 0)
    poll.poll()
    os.killpg(0, signal.SIGHUP)
