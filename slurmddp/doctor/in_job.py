"""The long look at the nodes: a short job, or a step of the allocation that one is in; its folder goes again.

What is looked at is in slurmddp.runtime.health; here it is started, waited for, and read.
"""

import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from slurmddp import variables
from slurmddp.cluster.request import fitted
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring import follow
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.runs.supervision import job_end, read_supervision
from slurmddp.script.render import render
from slurmddp.slurm import client, queries
from slurmddp.slurm.hostlist import expand
from slurmddp.submission import submit as submitting
from slurmddp.submission.sbatch import Notice

EXAM: Final = ("-m", "slurmddp.runtime.health.check")
NAME: Final = "doctor"
LIMIT_S: Final = 600
"""The time limit of the job: short enough to be started in the gaps between others."""
_STEP_LIMIT_S: Final = 600.0
_ENDING_S: Final = 10.0
_LOOK_S: Final = 0.5
_ERRORS: Final = re.compile(r"^(?:srun|slurmstepd): error: .*$", re.MULTILINE)
_SHOWN: Final = 2
_LOST: Final = re.compile(
    r"ranks? [0-9, ]+\((\S+)\).* (?:did not arrive|could not be started)"
    r"|Node failure on ([^\s;]+)|failed on node (\S+?):"
)
"""How the ranks, and srun of Slurm 22.05, name a node."""


def by_job(resolved: Resolved, environ: Mapping[str, str], notice: Notice) -> list[Finding]:
    """Submit a job that asks for the same nodes, wait for its end, and return what it found.

    Ctrl-C cancels it. Raises as `slurmddp.submission.submit.submit` and `slurmddp.monitoring.follow.wait` do.
    """
    with _folder(resolved.spec.runs_dir, notice) as folder:
        request = fitted(resolved, environ)
        spec = exam_spec(request.resolved.spec, folder)
        request = msgspec.structs.replace(request, resolved=Resolved(spec, request.resolved.origins))
        numbers: list[str] = []
        try:
            done = submitting.submit(
                request,
                change=True,
                environ=environ,
                notice=notice,
                accepted=lambda done: numbers.append(done.job_id.number),
            )
            notice(f"job {numbers[0]} looks at {spec.nodes} node(s)")
            follow.wait(done.run, numbers[0], environ, notice=notice)
        except BaseException:
            for number in numbers:
                _end(number, environ)
            raise
        return list(read(done.run, numbers[0]))


def by_step(resolved: Resolved, environ: Mapping[str, str], notice: Notice) -> list[Finding]:
    """Start a step on all nodes of the allocation that this process is in, and return what it found.

    Ctrl-C ends it. Raises UsageError where the environment tells a job but not its nodes, ClusterError when srun
    cannot be started or does not end.
    """
    if "SLURM_JOB_NODELIST" not in environ:
        raise UsageError(
            f"SLURM_JOB_ID={environ['SLURM_JOB_ID']} without SLURM_JOB_NODELIST is no allocation; "
            "unset SLURM_JOB_ID to submit the look as a job, or type salloc before it"
        )
    with _folder(resolved.spec.runs_dir, notice) as folder:
        spec = exam_spec(resolved.spec, folder)
        run, job = RunDir.named(spec.runs_dir, spec.job_name), environ["SLURM_JOB_ID"]
        run.create()
        run.job_script.write_bytes(step_script(spec))
        notice(f"a step of job {job} looks at its nodes; set-up lines run here, on {platform.node()}")
        command = ["env", f"{variables.STEP_NAME}={folder.name}", *step_command(spec, environ), str(run.job_script)]
        try:
            client.ask(command, environ, timeout_s=_STEP_LIMIT_S)
        except BaseException:  # srun goes on without the script that has started it
            with suppress(ClusterError):
                _end_step(job, folder.name, environ)
            raise
        return list(read(run, job))


def _end(number: str, environ: Mapping[str, str]) -> None:
    """Cancel a job, and give it a little time to end, after which it writes nothing more."""
    deadline = time.monotonic() + _ENDING_S
    with suppress(ClusterError):
        client.order(["scancel", number], environ)
        while time.monotonic() < deadline and any(not job.has_ended for job in queries.jobs([number], environ)):
            time.sleep(_LOOK_S)


def _end_step(job: str, name: str, environ: Mapping[str, str]) -> None:
    """End the step of that name, and none of the others that the allocation may have."""
    steps = client.query(["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i %j"], environ)
    for step, _, found in (line.strip().partition(" ") for line in steps.splitlines()):
        if found.strip() == name:
            client.order(["scancel", step], environ)


def exam_spec(spec: JobSpec, folder: Path) -> JobSpec:
    """Return the job that looks at what this one would get; its run lies in `folder`."""
    return msgspec.structs.replace(
        spec,
        command=EXAM,
        worker=WorkerOptions(),
        no_python=False,
        job_name=NAME,
        runs_dir=str(folder),
        time=str(min(spec.time_s or LIMIT_S, LIMIT_S) // 60 or 1),
        signal_lead=None,
        requeue=False,
        max_restarts=0,
        preflight=False,
        dependency=None,
        hold=False,
        reset=False,
    )


def step_script(spec: JobSpec) -> bytes:
    """Return the batch script of a job, but that it starts the ranks once and leaves the allocation alone."""
    launcher = "srun" if spec.launcher == "manual" else spec.launcher
    return render(msgspec.structs.replace(spec, launcher=launcher), single_attempt=True).encode()


def step_command(spec: JobSpec, environ: Mapping[str, str]) -> list[str]:
    """Return what a batch script is started by to have the ranks asked for on each node of this allocation."""
    nodes, cpus = len(expand(environ["SLURM_JOB_NODELIST"])), spec.cpus_per_task or environ.get("SLURM_CPUS_PER_TASK")
    variables = {
        "SLURM_JOB_ID": environ["SLURM_JOB_ID"],
        "SLURM_JOB_NODELIST": environ["SLURM_JOB_NODELIST"],
        "SLURM_NNODES": nodes,
        "SLURM_NTASKS": nodes * spec.tasks_per_node,
        "SLURM_NTASKS_PER_NODE": spec.tasks_per_node,
        "SLURM_OVERLAP": 1,
    } | ({"SLURM_CPUS_PER_TASK": cpus} if cpus else {})
    return ["env", *(f"{key}={value}" for key, value in variables.items()), "bash"]


def read(run: RunDir, job_id: str) -> Iterator[Finding]:
    """Yield what a look found, and why it did not come to its end."""
    table: dict[str, Any] = json.loads(run.findings.read_bytes()) if run.findings.exists() else {}
    yield from (msgspec.convert(each, Finding) for each in table.get("findings", []))
    if not table.get("complete"):
        yield _unfinished(run, job_id, met=bool(table))


def _unfinished(run: RunDir, job_id: str, *, met: bool) -> Finding:
    """Return why a look did not come to its end, by the supervisor's events, its set-up record and srun's words."""
    log = run.batch_log(job_id)
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    end = job_end(run, job_id, read_supervision(run, job_id))
    what = _with_errors(end.reason if end else "", text)
    lost = _LOST.search(what)
    host = lost[lost.lastindex or 0] if lost else ""
    if "could not connect IO" in text:
        return Finding(
            check="folder",
            level="error",
            host=host,
            what=what,
            why="srun could not open its ranks' output in the run's folder, which is missing or read-only there",
            advice="choose a folder that all nodes can write to, by --runs-dir, or leave the node out by --exclude",
        )
    return Finding(
        check="ranks" if met else "meeting",
        level="error",
        host=host,
        what=what,
        why="the ranks of a job on these nodes would end the same way",
        advice=f"the output is in {run.logs}",
    )


def _with_errors(reason: str, text: str) -> str:
    """Return the reason, with srun's first errors where it has none of a rank's."""
    first = reason or "the job left no record of its end"
    return "; ".join((first, *_ERRORS.findall(text)[:_SHOWN])) if "srun" in reason or not reason else reason


@contextmanager
def _folder(runs_dir: str, notice: Notice) -> Iterator[Path]:
    """Make a folder among those of the runs, where the nodes see it; it goes when the look came to its end.

    So it does when somebody has ended the look, which then has left nothing that would be of use.
    """
    parent = Path(os.path.abspath(runs_dir))  # noqa: PTH100 - resolve() would follow links that the nodes may not have
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=parent))
    interrupted = False
    try:
        yield folder
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        complete = folder / NAME / "findings.json"
        ended_well = complete.exists() and json.loads(complete.read_bytes())["complete"]
        if any((folder / NAME).glob("logs/*")) and not ended_well and not interrupted:
            notice(f"what the look left is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                for made in missing:
                    made.rmdir()
