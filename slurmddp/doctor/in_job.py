"""The check on the nodes themselves: by a short job, or by a step of the current allocation.

The checks are in slurmddp.runtime.health; this module starts them, waits for them, and reads their findings.
"""

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from slurmddp.cluster.request import fill_from_cluster
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.doctor.catalogue import finding
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring import follow
from slurmddp.runs.facts import read_job
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.slurm import client
from slurmddp.submission import allocation
from slurmddp.submission import submit as submitting
from slurmddp.submission.cancel import cancel, unfinished_jobs
from slurmddp.submission.submit_once import Notice, Submitted
from slurmddp.text import count

NODE_CHECK: Final = ("-m", "slurmddp.runtime.health.check")
NAME: Final = "doctor"
LIMIT_S: Final = 600
"""The time limit of the job, or of the step: short, so that Slurm can start the job in gaps between others."""
_ERRORS: Final = re.compile(r"^(?:srun|slurmstepd): error: .*$", re.MULTILINE)
_SHOWN_ERRORS: Final = 2
_LOST_NODE: Final = re.compile(
    r"ranks? [0-9, ]+\((\S+)\).* did not arrive"
    r"|Node failure on ([^\s;]+)|failed on node (\S+?):"
)
"""How ranks and srun of Slurm 22.05 name a node that was lost."""


def check_by_job(resolved: Resolved, environ: Mapping[str, str], notice: Notice) -> list[Finding]:
    """Submit a check job that asks for the same nodes, wait for its end, and return its findings.

    Ctrl-C cancels it. Raises as `slurmddp.submission.submit.submit` and `slurmddp.monitoring.follow.wait_for_job` do.
    """
    with _temporary_folder(resolved.spec.runs_dir, notice) as folder:
        request = fill_from_cluster(resolved, environ)
        spec = build_check_spec(request.resolved.spec, folder)
        request = msgspec.structs.replace(request, resolved=Resolved(spec, request.resolved.origins))
        queued: list[Submitted] = []
        try:
            done = submitting.submit(request, change=True, environ=environ, notice=notice, accepted=queued.append)
            notice(f"job {done.job_id.number} checks {count(spec.nodes, 'node')}")
            follow.wait_for_job(done.run, done.job_id.number, environ, notice=notice)
        except BaseException:
            for job in queued:
                with suppress(ClusterError):  # and it writes nothing more once it has ended
                    cancel(unfinished_jobs([Target(None, (job.job_id.number,))], environ), environ, notice)
            raise
        return list(read_findings(done.run, done.job_id.number))


def check_by_step(resolved: Resolved, environ: Mapping[str, str], notice: Notice) -> list[Finding]:
    """Start a check step on all nodes of the current allocation, and return its findings.

    Ctrl-C ends it. Raises UsageError if the environment names a job but not its nodes, ClusterError if srun cannot be
    started or does not end.
    """
    if "SLURM_JOB_NODELIST" not in environ:
        raise UsageError(
            f"SLURM_JOB_ID={environ['SLURM_JOB_ID']} without SLURM_JOB_NODELIST is no allocation; "
            "unset SLURM_JOB_ID to submit the check as a job, or start the command with salloc"
        )
    with _temporary_folder(resolved.spec.runs_dir, notice) as folder:
        spec = build_check_spec(resolved.spec, folder)
        run, job = RunDir.named(spec.runs_dir, spec.job_name), environ["SLURM_JOB_ID"]
        run.create()
        run.job_script.write_bytes(allocation.step_script(spec))
        notice(f"a step of job {job} checks its nodes; set-up lines run on this node, {platform.node()}")
        step = allocation.step_environment(spec, environ, folder.name)
        try:
            client.run_step(["bash", str(run.job_script)], step, timeout_s=LIMIT_S)
        except BaseException:
            allocation.cancel_steps(job, folder.name, environ)
            raise
        return list(read_findings(run, job))


def build_check_spec(spec: JobSpec, folder: Path) -> JobSpec:
    """Return the check job for the resources of this job; its run lies in `folder`."""
    return msgspec.structs.replace(
        spec,
        command=NODE_CHECK,
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
        after_signal_exit_0="done",  # it handles the stop signal that it sends to itself
        wrap=None,
        before_ranks=(),
        after_ranks=(),
    )


def read_findings(run: RunDir, job_id: str) -> Iterator[Finding]:
    """Yield the findings of a check; and why it ended early, by the supervisor's events, its set-up record and srun."""
    table: dict[str, Any] = json.loads(run.findings.read_bytes()) if run.findings.exists() else {}
    yield from (msgspec.convert(each, Finding) for each in table.get("findings", []))
    if table.get("complete"):
        return
    log = run.batch_log(job_id)
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    what = read_job(run, job_id).outcome.reason
    if not what or "srun" in what:  # it is not that of a rank: srun's first errors say more
        what = "; ".join((what or "the job left no record of its end", *_ERRORS.findall(text)[:_SHOWN_ERRORS]))
    lost = _LOST_NODE.search(what)
    host = lost[lost.lastindex or 0] if lost else ""
    if "could not connect IO" in text:
        yield finding("folder", "not-opened", what=what, host=host)
    else:
        yield finding("ranks" if table else "meeting", "ended", what=what, host=host, logs=run.logs)


@contextmanager
def _temporary_folder(runs_dir: str, notice: Notice) -> Iterator[Path]:
    """Create a folder in `runs_dir`, which the nodes share, and remove it after a complete or interrupted check.

    If the check failed and left logs, the folder stays.
    """
    parent = Path(os.path.abspath(runs_dir))  # noqa: PTH100 - resolve() would follow links that the nodes may not have
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=parent))
    try:
        yield folder
    finally:
        interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        complete = folder / NAME / "findings.json"
        ended_well = complete.exists() and json.loads(complete.read_bytes())["complete"]
        if any((folder / NAME).glob("logs/*")) and not ended_well and not interrupted:
            notice(f"the logs of the check are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                for made in missing:
                    made.rmdir()
