"""All checks of a job before it is queued, in the order in which it would fail.

Here are those of its variables and its stop notice, and those with Slurm: whether it answers and would accept the job,
and what preemption does to it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from slurmddp.cluster.limits import find_problems
from slurmddp.cluster.partitions import Cluster, Partition
from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.python_check import check_python
from slurmddp.doctor.storage import check_storage
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.findings import Finding, Level
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import build_script
from slurmddp.slurm import sbatch_command
from slurmddp.slurm.environment import scrubbed
from slurmddp.submission.compatibility import active_jobs
from slurmddp.text import list_some

SLOWING: Final = {
    "CUDA_LAUNCH_BLOCKING": "the program waits for every kernel",
    "NCCL_IB_DISABLE": "NCCL does not use InfiniBand",
    "NCCL_P2P_DISABLE": "the GPUs of a node exchange data through the host's memory",
    "NCCL_SHM_DISABLE": "the ranks of a node exchange data through the network",
    "TORCH_DISTRIBUTED_DEBUG": "with DETAIL torch checks every collective",
}
"""Variables that people set to find an error, and what they do."""
_OFF: Final = ("", "0", "OFF", "off", "INFO")
_CHOOSING: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_NET", "NCCL_ALGO", "NCCL_PROTO")
_NAMED: Final = 6
TESTED: Final = ("22.05", "24.11", "26.05")
"""The versions of Slurm that slurmddp is tested with (docs/compatibility.md), the oldest first."""
_finding = partial(Finding, check="variables")


def check_job(request: Request, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about a job, good and bad; nothing is written or submitted."""
    spec = request.resolved.spec
    batch_script = None
    try:
        batch_script = build_script(spec).text
        yield Finding(check="program", level="ok", what="the script and the known data are here")
    except UsageError as error:
        yield Finding(check="program", level="error", what=str(error), status=2)
    if not spec.script:
        yield from check_python(spec, environ)
    yield from check_storage(spec, environ)
    yield from check_variables(spec, environ)
    yield from check_stop_notice(spec)
    for job in active_jobs(RunDir.named(spec.runs_dir, spec.job_name), environ) if request.cluster is not None else ():
        what = f"run {spec.job_name} belongs to job {job.job_id}, which is {job.state}"
        yield Finding(check="run", level="note", what=what, why="a second job for it would be refused")
    yield from check_cluster(request, batch_script, environ)


def check_variables(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which variables the job does not inherit, and which inherited ones change its behaviour."""
    own = {item.partition("=")[0] for item in spec.variables}
    for name in sorted(own - set(environ) - {item.partition("=")[0] for item in spec.variables if "=" in item}):
        what, advice = f"--env {name}: {name} is not set here", f"export {name}, or type --env {name}=VALUE"
        yield _finding(level="error", what=what, why="the job would not have it", advice=advice, status=2)
    removed = scrubbed(environ)
    if removed:
        names = list_some(removed, _NAMED)
        what = f"the job does not inherit {len(removed)} variables of another job or of sbatch: {names}"
        yield _finding(level="note", what=what)
    for name, effect in SLOWING.items():
        if name not in own and environ.get(name, "") not in _OFF:
            what = f"the job inherits {name}={environ[name]}: {effect}"
            yield _finding(level="warning", what=what, why="it makes each step slower", advice=f"unset {name}")
    for name in _CHOOSING:
        if name not in own and environ.get(name):
            what = f"the job inherits {name}={environ[name]}, which must be correct on the nodes too"
            yield _finding(level="note", what=what, advice=f"unset {name}, or confirm it with --env {name}")
    if not (spec.gpus or spec.script) and environ.get("CUDA_VISIBLE_DEVICES") and "CUDA_VISIBLE_DEVICES" not in own:
        what = f"a job without GPUs inherits CUDA_VISIBLE_DEVICES={environ['CUDA_VISIBLE_DEVICES']}"
        why = "its ranks use GPUs that Slurm has not allocated to them"
        advice = "ask for GPUs with --gpus-per-node, or unset CUDA_VISIBLE_DEVICES"
        yield _finding(level="warning", what=what, why=why, advice=advice)


def check_stop_notice(spec: JobSpec) -> Iterator[Finding]:
    """Yield when the ranks receive the stop signal, and what happens to the job then."""
    limit = f"the time limit {spec.time}" if spec.time else "the partition's time limit"
    what = f"the ranks get a stop signal {spec.lead_s} s before the end of {limit}"
    if spec.requeue:
        yield Finding(check="notice", level="ok", what=f"{what}; the job is then requeued")
        return
    what += "; with --no-requeue the job does not start again"
    why = "the rest of the training is not done unless you submit the job again"
    advice = "remove --no-requeue, or queue jobs that continue it: `submit --chain N`"
    yield Finding(check="notice", level="warning", what=what, why=why, advice=advice)


def check_cluster(request: Request, script: bytes | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what Slurm says of a job; `script` is None if there is no batch script that sbatch could test."""
    cluster, spec = request.cluster, request.resolved.spec
    if spec.script:
        yield from _check_sbatch(script, environ)
        return
    if cluster is None:
        yield _refusal("slurm", request.silence)
        return
    what = f"cluster {cluster.name}, Slurm {cluster.version}, answers"
    release = re.match(r"\d\d\.\d\d", cluster.version)
    if release is None or TESTED[0] <= release[0] <= TESTED[-1]:
        yield Finding(check="slurm", level="ok", what=what)
    else:
        why = f"slurmddp is tested with Slurm {', '.join(TESTED)}, and not with this version"
        advice = "try a short job first: `submit --steps 10`"
        yield Finding(check="slurm", level="note", what=what, why=why, advice=advice)
    found = [_refusal("request", problem) for problem in find_problems(spec, cluster)]
    yield from found or [Finding(check="request", level="ok", what="the cluster has what the job asks for")]
    yield from _check_sbatch(script, environ)
    if spec.requeue and not cluster.requeue:
        what = "this cluster requeues no job unless the script asks for it (JobRequeue=0), which a site may refuse"
        yield Finding(check="requeue", level="note", what=what)
    for partition in cluster.partitions_of(spec.partition):
        yield describe_preemption(partition, cluster, requeues=spec.requeue)


def _check_sbatch(script: bytes | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    if script is None:
        return
    try:
        start = sbatch_command.expected_start(sbatch_command.test_only(script, environ))
        when = f", to start at {start:%Y-%m-%d %H:%M}" if start else ""
        yield Finding(check="sbatch", level="ok", what=f"sbatch would accept it{when}")
    except ClusterError as error:
        yield _refusal("sbatch", str(error))


def describe_preemption(partition: Partition, cluster: Cluster, *, requeues: bool) -> Finding:
    """Return what happens to the job if one of higher priority needs its nodes."""
    grace = f"after a grace time of {partition.grace_s} s" if partition.grace_s else "at once"
    how = "signalled before" if cluster.signals_on_preemption else "told by SIGTERM"
    notice = (
        "the ranks are told at once, and save their state"
        if partition.grace_s
        else f"the ranks are {how}, and have {cluster.kill_wait_s} s to save their state"
    )
    level: Level = "note"
    why = advice = ""
    if cluster.preempts_by_qos:
        what = "jobs are preempted by QOS, as the site has configured it"
    elif partition.preemption == "off":
        level, what = "ok", "no job is preempted"
    elif partition.preemption in ("suspend", "gang"):
        level, what = "warning", "a preempted job is suspended, and continues later"
        why = "ranks that continue at different times can time out in a collective"
        advice = "choose another --partition for long collectives, or expect a restart of the ranks"
    elif partition.preemption == "requeue" and requeues:
        level = "ok" if partition.grace_s else "note"
        what = f"a preempted job is requeued {grace}; {notice}"
    elif partition.grace_s and requeues:
        what = f"a preempted job is cancelled {grace}; {notice}; it requeues itself within the grace time"
    else:
        level, what = "warning", f"a preempted job is cancelled {grace}; {notice}"
        why, advice = "the job does not start again by itself", "queue jobs that continue it: `submit --chain N`"
    what = f"partition {partition.name}: {what}"
    return Finding(check="preemption", level=level, what=what, why=why, advice=advice)


def _refusal(check: str, what: str) -> Finding:
    why = "nothing can be submitted" if check == "slurm" else "the job would be refused, or would wait for ever"
    return Finding(check=check, level="error", what=what, why=why, status=ClusterError.exit_status)
