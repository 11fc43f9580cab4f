"""The program of the supervisor: the batch script ends with `exec python -m slurmddp.batch ... < <(declare -f)`."""

import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from slurmddp import supervisor_options, variables
from slurmddp.attach import BOOTSTRAP, run_words
from slurmddp.batch.attempt import Job
from slurmddp.batch.controller import Controller
from slurmddp.batch.shell_launch import ShellLaunch
from slurmddp.batch.supervisor import Supervisor, write_line
from slurmddp.errors import UsageError
from slurmddp.exit_codes import FAILED
from slurmddp.runs.events import SupervisorEvent
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import commands
from slurmddp.slurm.environment import submission_environment
from slurmddp.slurm.hostlist import try_expand
from slurmddp.supervisor_options import Options

JUDGE_S: Final = 10.0
"""What an attempt shows of its nodes is found in this time, or not noted: the job must be requeued soon."""
OWN_LAUNCH: Final = "--own-launch"
_LIMITS: Final = ("DATA", "FSIZE", "MEMLOCK", "NOFILE", "CPU", "NPROC", "AS")
_REQUIRED: Final = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", variables.JOB_ID, variables.RUN_DIR)


def main(words: list[str]) -> int:
    """Supervise the job of this batch script, and return its exit status."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    orders = take_stdout() if OWN_LAUNCH in words else None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
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
    environ = build_rank_environment(os.environ)
    shell = attach_to_shell(run, environ, orders) if orders else None
    functions = b"" if shell else sys.stdin.buffer.read()
    raise_soft_limits()
    job = Job.read(environ, run)
    status = Supervisor(
        options=given,
        job=job,
        environ=environ,
        slurm=Controller(os.environ),
        launch=shell or partial(call_function, functions, "launch"),
        finish=partial(call_function, functions, "finish") if given.finish else None,
        tell=choose_teller(given, job),
        judge_nodes=partial(judge_nodes, job),
        guard=partial(start_guard, job),
    ).run()
    return shell.end(status) if shell else status


def take_stdout() -> BinaryIO:
    """Return standard output, which the shell of a user's own script reads; what is printed goes to standard error."""
    taken = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return taken


def attach_to_shell(run: Path, environ: dict[str, str], orders: BinaryIO) -> ShellLaunch:
    """Return the launch of a user's own script, whose shell waits for orders; add the job's nodes to `environ`.

    The supervisor's own lines go to the job's output file; without one they stay on standard error.
    """
    with suppress(OSError):
        os.dup2(os.open(RunDir(run).batch_log(os.environ[variables.JOB_ID]), os.O_WRONLY | os.O_APPEND), 1)
    known = os.environ.get(variables.HOSTS)
    environ[variables.HOSTS] = known or " ".join(try_expand(os.environ["SLURM_JOB_NODELIST"]) or ())
    return ShellLaunch(orders, sys.stdin.buffer, write_line)


def choose_teller(given: Options, job: Job) -> Callable[[str, SupervisorEvent], object]:
    """Return what tells the events of a job to the target of `--notify`; nothing without one."""
    if given.notify and (target := os.environ.get(variables.NOTIFY_TARGET)):
        from slurmddp.batch.notify import Notifier  # noqa: PLC0415 - few jobs need it

        return Notifier(target, job, write_line).tell
    if given.notify:
        write_line(f"nobody is told what happens (--notify): {variables.NOTIFY_TARGET} is not set in the job")
    return lambda *_: None


def judge_nodes(job: Job, attempt: str) -> None:
    """Note what an attempt shows of its nodes, by a program of its own: the diagnosis needs more than a supervisor."""
    words = (job.cluster, str(job.run.path), job.job_id, attempt)
    command = [sys.executable, *run_words(sys.executable, has_slurmddp=True), "slurmddp.diagnose.node_faults", *words]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=JUDGE_S, check=True)  # noqa: S603 - our own module
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        why = said.decode(errors="replace").strip().rpartition("\n")[2]
        write_line(f"what the attempt shows of its nodes is not noted: {why}")


def start_guard(job: Job, node: str) -> None:
    """Start the guard of this node on another one, in a step of its own that outlives this process."""
    words = (str(job.run.path), job.job_id, str(job.restarts), job.host)
    python = (sys.executable, *run_words(sys.executable, has_slurmddp=True), "slurmddp.batch.guard")
    command = ["setsid", "--fork", *commands.run_beside(job.number, node, *python, *words)]
    environ, null = submission_environment(os.environ), subprocess.DEVNULL
    subprocess.run(command, env=environ, stdin=null, stdout=null, stderr=null, check=False)  # noqa: S603 - our own module


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
