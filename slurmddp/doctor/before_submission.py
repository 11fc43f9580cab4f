"""All checks of a job before it is queued, in the order in which it would fail.

Here are those of its variables and its stop notice, and those with Slurm: whether it answers and would accept the job,
and what preemption does to it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from slurmddp.cluster.limits import find_problems
from slurmddp.cluster.partitions import Cluster, Partition
from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.recipes import trains_alone
from slurmddp.doctor.catalogue import CATALOGUE, finding
from slurmddp.doctor.python_check import check_python
from slurmddp.doctor.storage import check_storage
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import build_script
from slurmddp.slurm import sbatch_command
from slurmddp.slurm.client import RefusedError
from slurmddp.slurm.environment import scrubbed
from slurmddp.submission.compatibility import active_jobs
from slurmddp.text import list_some

_OFF: Final = ("", "0", "OFF", "off", "INFO")
_NAMED: Final = 6
_LATE: Final = timedelta(days=30)
"""An expected start so far away is that of a job without a time limit, which Slurm counts as a year."""
TESTED: Final = ("22.05", "24.11", "26.05")
"""The versions of Slurm that slurmddp is tested with (docs/compatibility.md), the oldest first."""


def check_job(request: Request, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about a job, good and bad; nothing is written or submitted."""
    spec = request.resolved.spec
    batch_script = None
    try:
        batch_script = build_script(spec).text
        is_alone = spec.world_size > 1 and not spec.script and trains_alone(spec.parsed_command)
        yield finding("program", "alone" if is_alone else "ok", ranks=spec.world_size)
    except UsageError as error:
        what, _, advice = str(error).partition("; ")
        yield finding("program", "wrong", what=what, advice=advice)
    if not spec.script:
        yield from check_python(spec, environ)
    for folder in spec.script.missing_folders(spec.slurm_name) if spec.script else ():
        yield finding("output", "unknown" if "%" in str(folder) else "missing", folder=folder)
    yield from check_storage(spec)
    yield from check_variables(spec, environ)
    limit = f"the time limit {spec.time}" if spec.time else "the partition's time limit"
    yield finding("notice", "requeued" if spec.requeue else "ended", lead_s=spec.lead_s, limit=limit)
    run = RunDir.named(spec.runs_dir, spec.job_name)
    with suppress(ClusterError):  # check_cluster says it
        for job in active_jobs(run, environ, spec)[:1] if request.cluster or spec.script else ():
            yield finding("run", "busy", run=spec.job_name, job=job.job_id, state=job.state)
    yield from check_cluster(request, batch_script, environ)


def check_variables(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which variables the job does not inherit, and which inherited ones change its behaviour."""
    own = {item.partition("=")[0] for item in spec.variables}
    for name in sorted(own - set(environ) - {item.partition("=")[0] for item in spec.variables if "=" in item}):
        yield finding("variables", "unset", name=name)
    if removed := scrubbed(environ):
        yield finding("variables", "removed", number=len(removed), names=list_some(removed, _NAMED))
    for name, effect in CATALOGUE.texts["inherited"]["slowing"].items():
        if name not in own and environ.get(name, "") not in _OFF:
            yield finding("variables", "slowing", name=name, value=environ[name], effect=effect)
    for name in CATALOGUE.texts["inherited"]["choosing"]:
        if name not in own and environ.get(name):
            yield finding("variables", "choosing", name=name, value=environ[name])
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if not (spec.gpus or spec.script) and value and "CUDA_VISIBLE_DEVICES" not in own:
        yield finding("variables", "gpus", value=value)


def check_cluster(request: Request, script: bytes | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what Slurm says of a job; `script` is None if there is no batch script that sbatch could test."""
    cluster, spec = request.cluster, request.resolved.spec
    if spec.script:
        yield from _check_sbatch(script, environ)
        return
    if cluster is None:
        yield finding("slurm", "silent", what=request.silence)
        return
    release = re.match(r"\d\d\.\d\d", cluster.version)
    case = "ok" if release is None or TESTED[0] <= release[0] <= TESTED[-1] else "untested"
    yield finding("slurm", case, name=cluster.name, version=cluster.version, tested=", ".join(TESTED))
    found = [finding("request", "refused", what=problem) for problem in find_problems(spec, cluster)]
    yield from found or [finding("request", "ok")]
    yield from _check_sbatch(script, environ)
    if spec.requeue and not cluster.requeue:
        yield finding("requeue", "never")
    for partition in cluster.partitions_of(spec.partition):
        yield describe_preemption(partition, cluster, requeues=spec.requeue)


def _check_sbatch(script: bytes | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    if script is None:
        return
    try:
        start = sbatch_command.expected_start(sbatch_command.test_only(script, environ))
        when = f", to start at {start:%Y-%m-%d %H:%M}" if start else ""
        is_late = start is not None and start - datetime.now(start.tzinfo) > _LATE
        yield finding("sbatch", "late" if is_late else "ok", when=when)
    except RefusedError as error:
        what, _, advice = str(error).rpartition("; ")
        yield finding("sbatch", "refused", what=what, advice=advice)
    except ClusterError as error:
        yield finding("slurm", "silent", what=error)


def describe_preemption(partition: Partition, cluster: Cluster, *, requeues: bool) -> Finding:
    """Return what happens to the job if one of higher priority needs its nodes."""
    how = "signalled before" if cluster.signals_on_preemption else "told by SIGTERM"
    if cluster.preempts_by_qos:
        case = "by-qos"
    elif partition.preemption in ("off", "suspend", "gang"):
        case = "off" if partition.preemption == "off" else "suspend"
    else:
        comes_back = "requeue" if partition.preemption == "requeue" else "itself" if partition.grace_s else "cancel"
        case = (comes_back if requeues else "cancel") + "-in-grace-time" * bool(partition.grace_s)
    return finding(
        "preemption",
        case,
        name=partition.name,
        told=f"the ranks are {how}, and have {cluster.kill_wait_s} s to save their state",
        grace=f"after a grace time of {partition.grace_s} s; the ranks are told at once, and can save their state",
    )
