"""Checks with Slurm: whether it answers, whether it would accept the job, and what preemption does to it."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from slurmddp.cluster import Cluster, Partition
from slurmddp.cluster.limits import find_problems
from slurmddp.cluster.request import Request
from slurmddp.errors import ClusterError
from slurmddp.runs.findings import Finding, Level
from slurmddp.slurm import sbatch_command

TESTED: Final = ("22.05", "24.11", "26.05")
"""The versions of Slurm that slurmddp is tested with (docs/compatibility.md), the oldest first."""


def check_cluster(request: Request, script: bytes | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what Slurm says of a job; `script` is None if there is no batch script that sbatch could test."""
    cluster, spec = request.cluster, request.resolved.spec
    if cluster is None:
        yield _refusal("slurm", request.silence)
        return
    yield _describe_version(cluster)
    found = [_refusal("request", problem) for problem in find_problems(spec, cluster)]
    yield from found or [Finding(check="request", level="ok", what="the cluster has what the job asks for")]
    if script is not None:
        try:
            start = sbatch_command.expected_start(sbatch_command.test_only(script, environ))
            when = f", to start at {start:%Y-%m-%d %H:%M}" if start else ""
            yield Finding(check="sbatch", level="ok", what=f"sbatch would accept it{when}")
        except ClusterError as error:
            yield _refusal("sbatch", str(error))
    if spec.requeue and not cluster.requeue:
        what = "this cluster requeues no job unless the script asks for it (JobRequeue=0), which a site may refuse"
        yield Finding(check="requeue", level="note", what=what)
    for partition in cluster.partitions_of(spec.partition):
        yield describe_preemption(partition, cluster, requeues=spec.requeue)


def _describe_version(cluster: Cluster) -> Finding:
    what = f"cluster {cluster.name}, Slurm {cluster.version}, answers"
    release = re.match(r"\d\d\.\d\d", cluster.version)
    if release is None or TESTED[0] <= release[0] <= TESTED[-1]:
        return Finding(check="slurm", level="ok", what=what)
    why = f"slurmddp is tested with Slurm {', '.join(TESTED)}, and not with this version"
    advice = "try a short job first: `submit --steps 10`"
    return Finding(check="slurm", level="note", what=what, why=why, advice=advice)


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
