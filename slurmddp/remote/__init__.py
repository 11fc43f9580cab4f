"""`slurmddp --host`: the same commands on another machine, by OpenSSH, rsync and the slurmddp there."""

import os
import select
import signal
import sys
import threading

from slurmddp.errors import ClusterError
from slurmddp.version import __version__


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
