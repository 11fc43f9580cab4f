"""Job -> script -> sbatch -> id, and the record of it in the run's folder. Nothing is left behind by a refusal."""

import getpass
import hashlib
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import tomli_w

from slurmddp import __version__, config, provenance, slurm
from slurmddp.config import Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.fields import shown
from slurmddp.rundir import RunDir, append_record, read_records, write_whole
from slurmddp.script import script
from slurmddp.spec import JobSpec

ATTEMPTS: Final = 3
"""How often sbatch is tried when its answer is lost and the job is nowhere to be found."""

LOOKS: Final = (0.0, 2.0, 8.0)
"""Seconds to wait before each look for a job whose answer was lost; a busy controller accepts late."""

_REMEMBERED: Final = 20


@dataclass(frozen=True)
class Submitted:
    """A job in the queue."""

    job_id: slurm.JobId
    run: RunDir


def submit(resolved: Resolved, *, change: bool, environ: Mapping[str, str]) -> Submitted:
    """Submit a job and record it; `change` allows a run to go on with another command.

    Raises UsageError when the request is wrong by itself or the run is another's, ClusterError when Slurm refuses.
    """
    spec = resolved.spec
    text, run = script(spec), RunDir.named(spec.runs_dir, spec.job_name)
    _check_variables(spec, environ)
    _check_idle(run, environ)
    if not change:
        _check_same(run, resolved)
    created = run.create()
    try:
        job_id = _sbatch(text, spec, run, environ)
    except ClusterError as error:
        if created and not isinstance(error, slurm.LostAnswerError):
            shutil.rmtree(created)
        raise
    _record(run, job_id, text, resolved)
    return Submitted(job_id, run)


def _check_variables(spec: JobSpec, environ: Mapping[str, str]) -> None:
    for item in spec.env:
        if "=" not in item and item not in environ:
            raise UsageError(f"--env {item}: {item} is not set here; export it, or give --env {item}=VALUE")


def _check_idle(run: RunDir, environ: Mapping[str, str]) -> None:
    """Refuse a second job for a run that one is queued or running for."""
    earlier = [str(record["job"]) for record in read_records(run.submissions)][-_REMEMBERED:]
    for job in slurm.jobs(earlier, environ) if earlier else []:
        if not job.ended:
            raise UsageError(
                f"run {run.path.name} belongs to job {job.job_id}, which is {job.state}; wait for it, cancel it with "
                f"`scancel {job.job_id}`, or choose another --name"
            )


def _check_same(run: RunDir, resolved: Resolved) -> None:
    """Refuse to mix two programs in one run."""
    if not run.spec.exists():
        return
    recorded = config.read_job_file(run.spec)
    asked = config.recorded(resolved, directory=str(Path.cwd()), version=__version__)
    for key in ("command", "worker"):
        if recorded.get(key) != asked.get(key):
            raise UsageError(
                f"run {run.path.name} was made with another {key}: {_difference(recorded.get(key), asked.get(key))}; "
                "choose another --name, or --continue to mean it"
            )


def _difference(before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} {shown(before.get(key))} became {shown(now.get(key))}" for key in keys)
    return f"{shown(before)} became {shown(now)}"


def _sbatch(text: bytes, spec: JobSpec, run: RunDir, environ: Mapping[str, str]) -> slurm.JobId:
    """Submit once, also when the answer is lost: the job is looked for before sbatch is tried again."""
    since = datetime.now(UTC)
    known = [str(record["job"]) for record in read_records(run.submissions)]
    for _ in range(ATTEMPTS):
        try:
            return slurm.submit(text, output=run.batch_log("%j"), environ=environ)
        except slurm.LostAnswerError as error:
            lost = error
        found = _look(text, spec, since, known, environ)
        if found:
            return found
    raise slurm.LostAnswerError(
        f"sbatch's answer was lost {ATTEMPTS} times ({lost}) and no job {spec.job_name} is to be found; look with "
        f"`squeue --name={spec.job_name}` before you submit again"
    ) from lost


def _look(
    text: bytes, spec: JobSpec, since: datetime, known: list[str], environ: Mapping[str, str]
) -> slurm.JobId | None:
    for pause_s in LOOKS:
        time.sleep(pause_s)
        try:
            found = slurm.find_job(
                name=spec.job_name,
                user=getpass.getuser(),
                script=text,
                since=since,
                known=known,
                environ=environ,
            )
        except slurm.LostAnswerError:
            continue
        if found:
            return found
    return None


def _record(run: RunDir, job_id: slurm.JobId, text: bytes, resolved: Resolved) -> None:
    directory = Path.cwd()
    commit, dirty = provenance.commit(directory)
    write_whole(run.submitted_script(job_id.number), text)
    write_whole(run.job_script, text)
    spec = config.recorded(resolved, directory=str(directory), version=__version__)
    write_whole(run.spec, tomli_w.dumps(spec).encode())
    append_record(
        run.submissions,
        {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "job": job_id.number,
            "cluster": job_id.cluster,
            "sha256": hashlib.sha256(text).hexdigest(),
            "directory": str(directory),
            "commit": commit,
            "dirty": dirty,
            "version": __version__,
        },
    )
