"""`slurmddp run`: the same job on this machine, without Slurm, by torchrun. Starts one process and waits for it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from io import RawIOBase
from pathlib import Path
from typing import Final

from slurmddp import variables
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.python_env import environment_of
from slurmddp.errors import UsageError
from slurmddp.exit_codes import DONE
from slurmddp.runs.exit_records import ExitRecord, decisive, read_records
from slurmddp.runs.layout import HERE, LOCAL, RunDir
from slurmddp.runs.ownership import Claim, Ownership
from slurmddp.slurm.environment import submission_environment

ATTEMPT: Final = "0.0"
REST_LIMIT_S: Final = 2.0
"""For the last words of ranks that have ended."""


@dataclass(frozen=True)
class LocalRun:
    """One run on this machine: what is started, with which environment, and where its output goes."""

    run: RunDir
    job_id: str
    command: list[str]
    environment: dict[str, str]

    @property
    def owner(self) -> str:
        """The line of the run's owner file."""
        return f"{HERE} {self.job_id} {ATTEMPT}"

    @property
    def console_log(self) -> Path:
        """A copy of what the console shows: rank 0's output and torchrun's."""
        return self.run.rank_log(self.job_id, ATTEMPT, 0)


def plan(spec: JobSpec, *, devices: str | None, environ: Mapping[str, str]) -> LocalRun:
    """Describe the run of a job on this machine; `devices` are the GPUs to use, as in `0,2`.

    It has the ranks of one node. Raises UsageError for devices that are not numbers.
    """
    chosen, run = _devices(devices), RunDir.named(spec.runs_dir, spec.job_name)
    job_id = f"{LOCAL}{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}"
    ranks = 1 if spec.is_one_process else spec.ntasks_per_node or spec.gpus or len(chosen) or 1
    python = spec.python or sys.executable
    torchrun = [python, "-P", "-m", "slurmddp.runtime.launch.torchrun", "--standalone", f"--nproc-per-node={ranks}"]
    torchrun += ["--log-dir", str(run.attempt(job_id, ATTEMPT) / "torchrun")]
    command = [*torchrun, "--no-python", python, "-P", "-u", "-m", "slurmddp.worker", *spec.program_of_torchrun]
    return LocalRun(run, job_id, command, _environment(spec, run, job_id, chosen, environ))


def perform(local: LocalRun, *, show: Callable[[bytes], None]) -> int:
    """Run it, pass its output on, and return its status; Ctrl-C ends it, saved, and is raised again.

    Raises UsageError when something else is writing to the run.
    """
    local.run.create()
    with (
        _owned(local),
        _opened(local.console_log) as log,
        subprocess.Popen(
            local.command,
            env=local.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                log.write(line)
                show(line)
            return _status(local, process.wait())
        except BaseException:
            rest = threading.Thread(target=_keep, args=(process, log), daemon=True)
            rest.start()
            _end(process)
            rest.join(timeout=REST_LIMIT_S)
            raise


def _opened(log: Path) -> RawIOBase:
    """Return a new file in a folder of its own, which a run that is refused does not leave."""
    log.parent.mkdir(parents=True)
    return log.open("ab", buffering=0)


@contextmanager
def _owned(local: LocalRun) -> Iterator[None]:
    """Own the run while it is written to. Raises UsageError when another holds it that is not gone."""

    def check_gone(line: str) -> None:
        holder = Claim.parse(line)
        if holder and not _is_gone(holder):
            raise UsageError(
                f"run {local.run.path.name} belongs to '{holder}' (cluster, job, attempt); wait for it, choose "
                f"another --name, or remove {local.run.owner} if that is gone"
            )

    ownership = Ownership(local.run.owner, local.owner)
    ownership.take(check_gone)
    try:
        yield
    finally:
        ownership.release()


def _is_gone(holder: Claim) -> bool:
    """Tell of a run on this machine, whose id ends in its process, whether it has ended."""
    process = holder.job.rpartition("-")[2]
    return holder.cluster == HERE and process.isdecimal() and not Path(f"/proc/{process}").exists()


def _status(local: LocalRun, torchrun: int) -> int:
    """Return how the run ended: done when rank 0 has said so, as in a job; else as torchrun did."""
    record = _decisive(local)
    return DONE if record and record.status == DONE else torchrun


def cause(local: LocalRun) -> str | None:
    """Return, of a run that did not finish, what the deciding rank recorded, and where its output is.

    None when no rank left a record that counts, or the run is done.
    """
    record = _decisive(local)
    return f"{record.text}; see {record.output}" if record and record.status != DONE else None


def _decisive(local: LocalRun) -> ExitRecord | None:
    return decisive(read_records(local.console_log.parent))


def _environment(
    spec: JobSpec, run: RunDir, job_id: str, devices: list[str], environ: Mapping[str, str]
) -> dict[str, str]:
    given = dict(item.split("=", 1) for item in spec.variables if "=" in item)
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
    file = {variables.RENDEZVOUS_FILE: f"file://{run.meeting(job_id, ATTEMPT)}"} if spec.init == "file" else {}
    skip = {} if spec.preflight else {variables.SKIP_PREFLIGHT: "1"}
    ours = {
        variables.STARTED_BY: "torchrun",
        variables.RUN_DIR: str(run.path),
        variables.JOB_ID: job_id,
        variables.ATTEMPT: ATTEMPT,
        variables.OWNER: f"{HERE} {job_id} {ATTEMPT}",
        variables.RANK_LOGS: "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", "1"),
    }
    return (
        submission_environment(environ)
        | _found(spec, environ)
        | variables.with_old_names(ours)
        | file
        | skip
        | visible
        | given
    )


def _found(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Let programs that the ranks start find the virtual environment of the ranks' Python."""
    folder = environment_of(spec.python or sys.executable)
    return {"VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{environ.get('PATH', os.defpath)}"} if folder else {}


def _devices(text: str | None) -> list[str]:
    chosen = text.split(",") if text else []
    if not all(part.isdecimal() for part in chosen) or len(set(chosen)) != len(chosen):
        raise UsageError(f"--devices {text}: not a list of different GPU numbers, as in 0,2")
    return chosen


def _keep(process: subprocess.Popen[bytes], log: RawIOBase) -> None:
    """Write what the ranks still say while they end."""
    log.writelines(process.stdout or ())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and all its ranks, which share its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
