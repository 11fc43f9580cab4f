"""Becomes a command beside a rank, in its environment, on its CPUs, in its folder: JOB ATTEMPT RANK COMMAND...

The ranks are those that `look` finds on this machine. The words of the command go to no shell.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from slurmddp import variables
from slurmddp.watchdog.look import find_ranks

_NO_SUCH_PROGRAM, _NOT_STARTED = 127, 126
"""The exit statuses of a shell."""


def become(job: str, attempt: str, number: str, *command: str) -> None:
    """Become the command; return when the rank has ended. Raises OSError when the command cannot be started."""
    for rank in (one for one in find_ranks(job, attempt) if str(one.identity["rank"]) == number):
        entries = os.fsdecode(Path(f"/proc/{rank.pid}/environ").read_bytes()).split("\0")
        environ = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        environ.pop(variables.ATTACHED, None)
        numbers = ("rank", "local_rank", "world_size", "local_world_size")
        environ.update({name.upper(): str(rank.identity[name]) for name in numbers}, TERM=os.environ.get("TERM", ""))
        with suppress(OSError):
            os.sched_setaffinity(0, os.sched_getaffinity(rank.pid))  # Slurm binds a step of one task to one core
        with suppress(OSError):  # of a folder that was removed
            os.chdir(f"/proc/{rank.pid}/cwd")
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python alone
            signal.signal(ignored, signal.SIG_DFL)
        os.execvpe(command[0], command, environ)  # noqa: S606 - words, and no shell


if __name__ == "__main__":
    status = 1
    try:
        become(*sys.argv[1:])
        sys.stderr.write(f"Error: rank {sys.argv[3]} has ended\n")
    except OSError as error:
        sys.stderr.write(f"Error: {sys.argv[4]}: {error.strerror}\n")
        status = _NO_SUCH_PROGRAM if isinstance(error, FileNotFoundError) else _NOT_STARTED
    sys.exit(status)
