"""All that is looked at before the queue, in the order in which it would go wrong."""

from collections.abc import Iterator, Mapping

from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.job_environment import check_lines, check_notice, check_variables
from slurmddp.doctor.python_check import check_python
from slurmddp.doctor.slurm_check import check_cluster
from slurmddp.doctor.storage import check_storage
from slurmddp.errors import UsageError
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import script
from slurmddp.submission.submit import unfinished


def examine(request: Request, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is found about a job, good and bad; nothing is written or submitted."""
    spec = request.resolved.spec
    text = _script(spec)
    if isinstance(text, str):
        yield Finding(check="program", level="error", what=text, status=2)
    else:
        yield Finding(check="program", level="ok", what="the script, and the data as far as it is known, are here")
    yield from check_python(spec, environ)
    yield from check_storage(spec, environ)
    yield from check_lines(spec)
    yield from check_variables(spec, environ)
    yield from check_notice(spec)
    if request.cluster is not None:
        yield from check_run(spec, environ)
    yield from check_cluster(request, text if isinstance(text, bytes) else None, environ)


def check_run(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the jobs that hold the run: a second one is refused as long as they are queued or running."""
    for job in unfinished(RunDir.named(spec.runs_dir, spec.job_name), environ):
        what = f"run {spec.job_name} belongs to job {job.job_id}, which is {job.state}"
        yield Finding(check="run", level="note", what=what, why="a second job for it would be refused")


def _script(spec: JobSpec) -> bytes | str:
    """Return the batch script; why there is none, when script or data are missing."""
    try:
        return script(spec)
    except UsageError as error:
        return str(error)
