"""`slurmddp run` inside an allocation, as of salloc: the job's script starts its ranks once on all nodes of it.

Nothing is submitted, and the allocation stays. Starts one process and waits for it.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from slurmddp import variables
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import ClusterError
from slurmddp.monitoring.follow import READ_PAUSE_S, Output
from slurmddp.runs.files import write_whole
from slurmddp.runs.layout import RunDir
from slurmddp.script.render import render
from slurmddp.slurm import client, commands
from slurmddp.slurm.environment import submission_environment
from slurmddp.slurm.hostlist import expand
from slurmddp.submission.run_local import LocalRun, hold_ownership, new_job_id

_INTERACTIVE_STEP: Final = "4294967290"
"""SLURM_STEP_ID in the shell that salloc starts on a node (LaunchParameters=use_interactive_step)."""
_ASK_S: Final = 1.0
"""Until a step that was about to start is looked for again."""
_END_LIMIT_S: Final = 30.0
"""For the ranks to save and end after Ctrl-C."""


def is_inside(environ: Mapping[str, str]) -> bool:
    """Return whether this is a shell of an allocation: no batch script, and no task of a step."""
    is_shell = environ.get("SLURM_STEP_ID", _INTERACTIVE_STEP) == _INTERACTIVE_STEP
    return (
        {"SLURM_JOB_ID", "SLURM_JOB_NODELIST"} <= environ.keys() and is_shell and environ.get("ENVIRONMENT") != "BATCH"
    )


def fit(spec: JobSpec, environ: Mapping[str, str]) -> JobSpec:
    """Return the job for all nodes of the allocation; without ranks a node, those that it is made for."""
    nodes = len(expand(environ["SLURM_JOB_NODELIST"]))
    asked = (environ.get("SLURM_NTASKS_PER_NODE", ""), environ.get("SLURM_GPUS_PER_NODE", "").rpartition(":")[2])
    per_node = next((int(text) for text in asked if text.isdecimal()), int(environ.get("SLURM_NTASKS", nodes)) // nodes)
    given = spec.tasks_per_node if spec.ntasks_per_node or spec.gpus else max(1, per_node)
    return msgspec.structs.replace(spec, nodes=nodes, ntasks_per_node=given, snapshot=False, reset=False)


def step_script(spec: JobSpec) -> bytes:
    """Return the batch script of a job for one attempt, which does not end or requeue the allocation."""
    launcher = "srun" if spec.launcher == "manual" else spec.launcher
    return render(msgspec.structs.replace(spec, launcher=launcher), single_attempt=True).encode()


def step_environment(spec: JobSpec, environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the environment in which a batch script starts the job's ranks on each node, in steps of this name."""
    nodes, cpus = len(expand(environ["SLURM_JOB_NODELIST"])), spec.cpus_per_task or environ.get("SLURM_CPUS_PER_TASK")
    own = {
        "SLURM_JOB_ID": environ["SLURM_JOB_ID"],
        "SLURM_JOB_NODELIST": environ["SLURM_JOB_NODELIST"],
        "SLURM_NNODES": f"{nodes}",
        "SLURM_NTASKS": f"{nodes * spec.tasks_per_node}",
        "SLURM_NTASKS_PER_NODE": f"{spec.tasks_per_node}",
        "SLURM_OVERLAP": "1",
        variables.STEP_NAME: name,
    }
    return submission_environment(environ) | own | ({"SLURM_CPUS_PER_TASK": f"{cpus}"} if cpus else {})


def cancel_steps(job: str, name: str, environ: Mapping[str, str], *, by: str = "") -> bool:
    """Kill the steps of this name, which outlive their script, or send them a signal; return whether there was one."""
    with suppress(ClusterError):
        steps = client.query(commands.list_queue("--steps", f"--jobs={job}", columns="%i %j"), environ)
        named = (line.split(maxsplit=1) for line in steps.splitlines())
        if own := [number for number, *names in named if names == [name]]:
            client.order(commands.cancel(*own, signal=by), environ)
            return True
    return False


def plan(spec: JobSpec, environ: Mapping[str, str]) -> LocalRun:
    """Describe the run of a fitted job on the nodes of the allocation."""
    run, job_id = RunDir.named(spec.runs_dir, spec.job_name), new_job_id()
    step = step_environment(spec, environ, job_id) | {variables.JOB_ID: job_id}
    return LocalRun(run, job_id, ["bash", str(run.submitted_script(job_id))], step)


def perform(local: LocalRun, spec: JobSpec, *, show: Callable[[bytes], None]) -> int:
    """Run the job and pass its output on; return the status of its script.

    Ctrl-C ends the ranks with their state saved, and is raised again. Raises UsageError when something else is writing
    to the run, ClusterError when srun is missing.
    """
    client.find_program("srun", local.environment)
    local.run.create()
    output = Output(local.run, local.job_id)
    with hold_ownership(local):
        write_whole(local.run.submitted_script(local.job_id), step_script(spec))
        with client.started(local.command, local.environment, own_session=True) as script:
            try:
                while script.poll() is None:
                    for line in output.new_lines():
                        show(line.text)
                    time.sleep(READ_PAUSE_S)
            except BaseException:
                _stop(lambda: script.poll() is None, script.pid, local)
                raise
        for line in output.remaining_lines():
            show(line.text)
    return script.returncode


def _stop(is_running: Callable[[], bool], pid: int, local: LocalRun) -> None:
    """End the ranks by a stop signal, upon which they save; kill them after half a minute, or upon another Ctrl-C."""
    job, environ = local.environment["SLURM_JOB_ID"], local.environment
    deadline = time.monotonic() + (_END_LIMIT_S if local.run.attempts(local.job_id) else 0)
    is_told = False
    try:
        while is_running() and time.monotonic() < deadline:
            is_told = is_told or cancel_steps(job, local.job_id, environ, by="TERM")
            time.sleep(READ_PAUSE_S if is_told else _ASK_S)
    finally:
        if is_running():
            cancel_steps(job, local.job_id, environ)
            os.killpg(pid, signal.SIGTERM)
