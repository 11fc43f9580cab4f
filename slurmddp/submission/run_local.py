"""`slurmddp run`: the same job on this machine, without Slurm, by torchrun. Starts one process and waits for it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp import variables
from slurmddp.attach import run_words
from slurmddp.config.job_spec import JOB_WORD, JobSpec, for_torchrun
from slurmddp.config.python_env import environment_of
from slurmddp.errors import UsageError
from slurmddp.exit_codes import DONE
from slurmddp.runs.exit_records import ExitRecord, decisive_record, read_records
from slurmddp.runs.files import warn_once
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import HERE, Claim, HeldError, Ownership, take_file
from slurmddp.slurm.environment import submission_environment
from slurmddp.slurm.job_info import LOCAL
from slurmddp.text import count

ATTEMPT: Final = "0.0"
REST_LIMIT_S: Final = 2.0
"""Time for the last output of ranks that have ended."""


class LocalRun(NamedTuple):
    """One run on this machine: its command, its environment, and its files."""

    run: RunDir
    job_id: str
    command: list[str]
    environment: dict[str, str]

    @property
    def console_log(self) -> Path:
        """A copy of what the console shows: rank 0's output and torchrun's."""
        return self.run.rank_log(self.job_id, ATTEMPT, 0)


def plan(spec: JobSpec, *, devices: str | None, environ: Mapping[str, str]) -> LocalRun:
    """Describe the run of a job on this machine; `devices` are the GPUs to use, as in `0,2`.

    It has the ranks of one node. Raises UsageError for devices that are not numbers, or not --gpus-per-node.
    """
    chosen = devices.split(",") if devices else []
    if not all(part.isdecimal() for part in chosen) or len(set(chosen)) != len(chosen):
        raise UsageError(f"--devices {devices}: not a list of different GPU numbers, as in 0,2")
    if chosen and spec.gpus not in (0, len(chosen)):
        named = f"--devices names {count(len(chosen), 'GPU')}"
        raise UsageError(f"{named}, but --gpus-per-node is {spec.gpus}; give --gpus-per-node {len(chosen)}")
    for word in (*spec.command, *spec.env):
        if found := JOB_WORD.search(word):
            raise UsageError(f"{found[0]} has no value without Slurm; submit the job, or leave it out")
    run = RunDir.named(spec.runs_dir, spec.job_name)
    job_id = new_job_id()
    ranks = spec.ntasks_per_node or spec.gpus or len(chosen) or 1
    python = _python_of(spec)
    torchrun = [python, *run_words(python), "slurmddp.runtime.launch.torchrun", "--standalone"]
    torchrun += ["--local-addr=localhost", f"--nproc-per-node={ranks}"]
    torchrun += ["--log-dir", str(run.attempt(job_id, ATTEMPT) / "torchrun")]
    command = [*torchrun, "--no-python", python, *run_words(python), "slurmddp.worker", *for_torchrun(spec.program)]
    return LocalRun(run, job_id, command, _environment(spec, run, job_id, chosen, environ))


def new_job_id() -> str:
    """Return the id of a run that is no job of Slurm's: it ends in the number of this process."""
    return f"{LOCAL}{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}"


def _python_of(spec: JobSpec) -> str:
    of_venv = Path(spec.venv or "", "bin", "python")
    return spec.python or (str(of_venv) if spec.venv and of_venv.exists() else sys.executable)


def perform(local: LocalRun, *, show: Callable[[bytes], None]) -> int:
    """Run it, pass its output on, and return DONE when the ranks' records say so, else the status of torchrun.

    Ctrl-C stops it with its state saved, and is raised again. Raises UsageError when something else is writing to the
    run.
    """
    local.run.create()
    with hold_ownership(local):  # first, so that a refused run leaves no folder
        local.console_log.parent.mkdir(parents=True)
        local.run.checkpoints.mkdir(exist_ok=True)
        pipe, end = subprocess.PIPE, subprocess.STDOUT
        with (
            local.console_log.open("ab", buffering=0) as log,
            subprocess.Popen(  # noqa: S603 - the user's own COMMAND
                local.command, env=local.environment, stdout=pipe, stderr=end, start_new_session=True
            ) as process,
        ):
            try:
                for line in process.stdout or ():
                    _keep(log, [line])
                    show(line)
                status = process.wait()
            except BaseException:
                # what the ranks still print while they end
                rest = threading.Thread(target=_keep, args=(log, process.stdout or ()), daemon=True)
                rest.start()
                _stop_process(process)
                rest.join(timeout=REST_LIMIT_S)
                raise
    record = _read_end(local)
    return DONE if record and record.status == DONE else status


def _keep(log: FileIO, lines: Iterable[bytes]) -> None:
    """Write lines of the output to its file; the run goes on without them where that cannot be written."""
    try:
        log.writelines(lines)
    except OSError as error:
        warn_once(f"{os.fsdecode(log.name)} cannot be written: {error.strerror}; the output is shown here alone")


@contextmanager
def hold_ownership(local: LocalRun) -> Iterator[None]:
    """Own the run while it runs. Raises UsageError when another attempt owns it that may still run."""

    def describe_holder(line: str) -> str:
        holder = Claim.parse(line)
        keeps = holder and (holder.cluster != HERE or holder.is_running_here)
        return f"run {local.run.path.name} belongs to '{holder}' (cluster, job, attempt)" if keeps else ""

    ownership = Ownership(local.run.owner, str(Claim(HERE, local.job_id, ATTEMPT)))
    try:
        take_file(ownership.path, ownership.line, describe_holder)
    except HeldError as error:
        advice = f"wait for it, choose another --name, or remove {local.run.owner} if that is gone"
        raise UsageError(f"{error}; {advice}") from error
    try:
        yield
    finally:
        ownership.release()


def failure_reason(local: LocalRun) -> str | None:
    """Return why a run did not finish, and where that rank's output is.

    None when no rank left such a record, or the run is done.
    """
    end = _read_end(local)
    return f"{end.text}; see {end.output}" if end and end.status != DONE else None


def _read_end(local: LocalRun) -> ExitRecord | None:
    return decisive_record(read_records(local.run.attempt(local.job_id, ATTEMPT)))


def _environment(
    spec: JobSpec, run: RunDir, job_id: str, devices: list[str], environ: Mapping[str, str]
) -> dict[str, str]:
    values = {
        variables.STARTED_BY: "torchrun",
        variables.RUN_DIR: str(run.path),
        variables.JOB_ID: job_id,
        variables.ATTEMPT: ATTEMPT,
        variables.CHECKPOINT_DIR: str(run.checkpoints),
        variables.OWNER: str(Claim(HERE, job_id, ATTEMPT)),
        variables.RANK_LOGS: "1",
        variables.SECRET: os.urandom(16).hex(),
        variables.EXIT_0_AFTER_SIGNAL: "done",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", "1"),
    }
    if spec.rendezvous == "file":
        values[variables.RENDEZVOUS_FILE] = f"file://{run.rendezvous_file(job_id, ATTEMPT)}"
    if not spec.preflight:
        values[variables.SKIP_PREFLIGHT] = "1"
    if devices:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    if folder := environment_of(_python_of(spec)):  # programs that the ranks start find it, too
        values |= {"VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{environ.get('PATH', os.defpath)}"}
    given = dict(item.split("=", 1) for item in spec.variables if "=" in item)
    return submission_environment(environ) | values | given


def _stop_process(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and all its ranks, which share its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
