"""All checks of a job before it is queued, in the order in which it would fail."""

from collections.abc import Iterator, Mapping

from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.job_environment import check_stop_notice, check_variables
from slurmddp.doctor.python_check import check_python
from slurmddp.doctor.slurm_check import check_cluster
from slurmddp.doctor.storage import check_storage
from slurmddp.errors import UsageError
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import build_script
from slurmddp.submission.compatibility import active_jobs


def check_job(request: Request, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about a job, good and bad; nothing is written or submitted."""
    spec = request.resolved.spec
    batch_script = None
    try:
        batch_script = build_script(spec).text
        yield Finding(check="program", level="ok", what="the script and the known data are here")
    except UsageError as error:
        yield Finding(check="program", level="error", what=str(error), status=2)
    yield from check_python(spec, environ)
    yield from check_storage(spec, environ)
    yield from check_variables(spec, environ)
    yield from check_stop_notice(spec)
    if request.cluster is not None:
        yield from check_run(spec, environ)
    yield from check_cluster(request, batch_script, environ)


def check_run(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the jobs that own the run: while one is queued or runs, a second job is refused."""
    for job in active_jobs(RunDir.named(spec.runs_dir, spec.job_name), environ):
        what = f"run {spec.job_name} belongs to job {job.job_id}, which is {job.state}"
        yield Finding(check="run", level="note", what=what, why="a second job for it would be refused")
