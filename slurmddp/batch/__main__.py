"""`exec python -m slurmddp.batch OPTIONS < <(declare -f)`: what the batch script becomes."""

import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp import variables
from slurmddp.batch import arguments
from slurmddp.batch.attempt import Job
from slurmddp.batch.controller import Controller
from slurmddp.batch.supervisor import Supervisor, size_of_output, write_line
from slurmddp.errors import UsageError
from slurmddp.exit_codes import DONE, FAILED
from slurmddp.runs.layout import RunDir, write_whole
from slurmddp.version import __version__

_LIMITS: Final = ("DATA", "FSIZE", "MEMLOCK", "NOFILE", "CPU", "NPROC", "AS")
_OF_A_JOB: Final = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", variables.JOB_ID, variables.RUN_DIR)
_LAUNCH: Final = "launch"
_FINISH: Final = "finish"
_BEFORE: Final = "${DDPRUN_STATUS:-$?}"
"""A template's `launch` block of before 0.2 leaves the status in a variable."""


def main(words: list[str]) -> int:
    """Supervise the job of this batch script, and return its exit status."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if (protocol := arguments.protocol_of(words)) != arguments.PROTOCOL:
        return _refuse(
            f"this script speaks protocol {protocol}, and slurmddp {__version__} in {Path(__file__).parents[1]} "
            f"speaks {arguments.PROTOCOL}; submit the job again, or give the Python that made it by --python",
            os.environ,
        )
    if "--help" in words:
        sys.stdout.write(arguments.USAGE)
        return DONE
    try:
        given = arguments.parse(words)
        _check_in_job(os.environ)
    except UsageError as error:
        write_line(str(error))
        return error.exit_status
    functions = sys.stdin.buffer.read()
    raise_soft_limits()
    environ = rank_environment(os.environ)
    return Supervisor(
        options=given,
        job=Job.read(environ, Path(environ[variables.RUN_DIR])),
        environ=environ,
        slurm=Controller(os.environ),
        launch=lambda environment: call(functions, _LAUNCH, environment),
        finish=(lambda environment: call(functions, _FINISH, environment)) if given.finish else None,
        say=write_line,
        log_size=size_of_output,
    ).run()


def _check_in_job(environ: Mapping[str, str]) -> None:
    if missing := [name for name in _OF_A_JOB if name not in environ]:
        raise UsageError(f"{missing[0]} is not set; this is started by a batch script: type `slurmddp submit`")


def _refuse(reason: str, environ: Mapping[str, str]) -> int:
    """Say why no supervisor runs, also in the record that a failed set-up leaves; return the status."""
    write_line(reason)
    if variables.RUN_DIR in environ and variables.JOB_ID in environ:
        record = RunDir(Path(environ[variables.RUN_DIR])).batch_record(environ[variables.JOB_ID])
        write_whole(record, f"{FAILED} {reason}\n".encode())
    return FAILED


def rank_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the ranks as far as it is the same for each attempt.

    What another job's attempt has left there, as where sbatch was typed in a job, is taken out.
    """
    own = {name: value for name, value in environ.items() if name not in variables.OF_AN_ATTEMPT}
    if variables.CODE not in environ:
        return own
    real = str(Path.cwd())
    return {**own, variables.WORKDIR: environ.get("PWD", real), variables.REAL_WORKDIR: real}


def raise_soft_limits() -> None:
    """Raise each soft limit to the hard one: soft limits travel here from the login node."""
    for name in _LIMITS:
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        with suppress(OSError, ValueError):  # a hard limit may be above what the kernel allows
            resource.setrlimit(kind, (hard, hard))


def call(functions: bytes, name: str, environ: Mapping[str, str]) -> int:
    """Run one of the script's functions in a bash of its own, and return its status; 128 + n for signal n.

    The functions come by standard input: an environment variable, or an argument, holds 128 KiB at most. `-p`: what
    BASH_ENV, SHELLOPTS and exported functions would change was settled by the set-up lines.
    """
    _reap()
    code = functions + f'\n{name} </dev/null; exit "{_BEFORE}"\n'.encode()
    done = subprocess.run(["bash", "-ps"], input=code, env=environ, check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _reap() -> None:
    """Collect children that have ended: the shell of `< <(declare -f)` is one, and would stay as a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
