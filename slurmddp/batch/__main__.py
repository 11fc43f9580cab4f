"""The program of the supervisor: the batch script ends with `exec python -m slurmddp.batch ... < <(declare -f)`."""

import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from slurmddp import supervisor_options, variables
from slurmddp.attach import BOOTSTRAP, attach_variables
from slurmddp.batch.attempt import Job
from slurmddp.batch.controller import Controller
from slurmddp.batch.shell_launch import ShellLaunch
from slurmddp.batch.supervisor import Supervisor, write_line
from slurmddp.errors import UsageError
from slurmddp.exit_codes import FAILED
from slurmddp.runs.events import SupervisorEvent
from slurmddp.runs.files import write_whole
from slurmddp.runs.layout import RunDir
from slurmddp.supervisor_options import Options
from slurmddp.version import __version__

OWN_LAUNCH: Final = "--own-launch"
_LIMITS: Final = ("DATA", "FSIZE", "MEMLOCK", "NOFILE", "CPU", "NPROC", "AS")
_PACKAGE: Final = Path(__file__).parents[1]
_REQUIRED: Final = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", variables.JOB_ID, variables.RUN_DIR)


def main(words: list[str]) -> int:
    """Supervise the job of this batch script, and return its exit status."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    orders = take_stdout() if OWN_LAUNCH in words else None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if (protocol := supervisor_options.read_protocol(words)) != supervisor_options.PROTOCOL:
        reason = (
            f"this script speaks protocol {protocol}, and slurmddp {__version__} in {Path(__file__).parents[1]} "
            f"speaks {supervisor_options.PROTOCOL}; submit the job again, or give the Python that made it by --python"
        )
        write_line(reason)
        if variables.RUN_DIR in os.environ and variables.JOB_ID in os.environ:
            record = RunDir(Path(os.environ[variables.RUN_DIR])).batch_record(os.environ[variables.JOB_ID])
            with suppress(OSError):  # the batch log has it, too
                write_whole(record, f"{FAILED} {reason}\n".encode())
        return FAILED
    try:
        given = supervisor_options.parse(words)
    except UsageError as error:
        write_line(str(error))
        return error.exit_status
    if missing := [name for name in _REQUIRED if name not in os.environ]:
        write_line(f"{missing[0]} is not set; this is started by a batch script: type `slurmddp submit`")
        return UsageError.exit_status
    run = Path(os.environ[variables.RUN_DIR])
    if why := RunDir(run).explain_strange():
        write_line(f"the run's folder is not yours alone, and nothing of it is used: {why}")
        return FAILED
    if orders:
        return supervise_own_launch(given, run, orders)
    functions = sys.stdin.buffer.read()
    raise_soft_limits()
    environ = build_rank_environment(os.environ)
    job = Job.read(environ, run)
    return Supervisor(
        options=given,
        job=job,
        environ=environ,
        slurm=Controller(os.environ),
        launch=lambda environment: call_function(functions, "launch", environment),
        finish=(lambda environment: call_function(functions, "finish", environment)) if given.finish else None,
        tell=choose_teller(given, job),
    ).run()


def take_stdout() -> BinaryIO:
    """Return standard output, which the shell of a user's own script reads; what is printed goes to standard error."""
    taken = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return taken


def supervise_own_launch(given: Options, run: Path, orders: BinaryIO) -> int:
    """Supervise the launch of a user's own script, whose shell waits for orders; return 0.

    The supervisor's own lines go to the job's output file; without one they stay on standard error.
    """
    with suppress(OSError):
        os.dup2(os.open(RunDir(run).batch_log(os.environ[variables.JOB_ID]), os.O_WRONLY | os.O_APPEND), 1)
    slurm = Controller(os.environ)
    hosts = os.environ.get(variables.HOSTS) or " ".join(slurm.hostnames(os.environ["SLURM_JOB_NODELIST"]))
    environ = {**build_rank_environment(os.environ), variables.HOSTS: hosts}
    launch = ShellLaunch(orders, sys.stdin.buffer, write_line)
    job = Job.read(environ, run)
    supervisor = Supervisor(
        options=given,
        job=job,
        environ=environ,
        slurm=slurm,
        launch=lambda attempt: launch({**attempt, **attach_variables(attempt, _PACKAGE)}),
        tell=choose_teller(given, job),
    )
    launch.end(supervisor.run())
    return 0


def choose_teller(given: Options, job: Job) -> Callable[[str, SupervisorEvent], object]:
    """Return what tells the events of a job to the target of `--notify`; nothing without one."""
    if given.notify and (target := os.environ.get(variables.NOTIFY_TARGET)):
        from slurmddp.batch.notify import Notifier  # noqa: PLC0415 - few jobs need it

        return Notifier(target, job, write_line).tell
    if given.notify:
        write_line(f"nobody is told what happens (--notify): {variables.NOTIFY_TARGET} is not set in the job")
    return lambda *_: None


def build_rank_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the ranks' environment that is the same for each attempt.

    Variables of another job's attempt are removed: sbatch may have been typed inside a job.
    """
    own = {name: value for name, value in environ.items() if name not in variables.OF_AN_ATTEMPT}
    own[variables.BOOTSTRAP] = str(BOOTSTRAP)
    if variables.CODE not in environ:
        return own
    real = str(Path.cwd())
    return {**own, variables.WORKDIR: environ.get("PWD", real), variables.REAL_WORKDIR: real}


def raise_soft_limits() -> None:
    """Raise each soft limit to the hard limit: Slurm copies the soft limits of the login node."""
    for name in _LIMITS:
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        with suppress(OSError, ValueError):  # a hard limit may be above what the kernel allows
            resource.setrlimit(kind, (hard, hard))


def call_function(functions: bytes, name: str, environ: Mapping[str, str]) -> int:
    """Run one of the script's functions in a new bash; return its status, 128 + n for signal n.

    The functions are passed by standard input: an environment variable or an argument can have 128 KiB at most. With
    `-p`, bash ignores BASH_ENV, SHELLOPTS and exported functions, which the set-up lines have already used.
    """
    with suppress(ChildProcessError):  # the shell of `< <(declare -f)` would stay as a zombie
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    code = functions + f"\n{name} </dev/null; exit\n".encode()
    done = subprocess.run(["bash", "-ps"], input=code, env=environ, check=False)  # noqa: S607 - bash by PATH, as the script that it is part of
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
