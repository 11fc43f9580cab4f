"""Slurm before the queue: whether it answers, has what the job asks for, would take it, and what preemption does."""

from collections.abc import Iterator, Mapping

from slurmddp.cluster import Cluster, Partition
from slurmddp.cluster.limits import problems
from slurmddp.cluster.request import Request
from slurmddp.errors import ClusterError
from slurmddp.runs.findings import Finding
from slurmddp.slurm import sbatch_command


def check_cluster(request: Request, script: bytes | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what Slurm says of a job; `script` is None when the job has none that could be shown to sbatch."""
    cluster, spec = request.cluster, request.resolved.spec
    if cluster is None:
        yield _refused("slurm", request.silence)
        return
    yield Finding(check="slurm", level="ok", what=f"cluster {cluster.name}, Slurm {cluster.version}, answers")
    found = [_refused("request", problem) for problem in problems(spec, cluster)]
    yield from found or [Finding(check="request", level="ok", what="the cluster has what the job asks for")]
    if script is not None:
        yield _of_sbatch(script, environ)
    if spec.requeue and not cluster.requeue:
        what = "this cluster requeues no job by itself (JobRequeue=0); the script asks for it, which a site may refuse"
        yield Finding(check="requeue", level="note", what=what)
    for partition in cluster.partitions_of(spec.partition):
        yield of_preemption(partition, cluster, requeues=spec.requeue)


def _of_sbatch(script: bytes, environ: Mapping[str, str]) -> Finding:
    try:
        start = sbatch_command.expected_start(sbatch_command.test_only(script, environ))
    except ClusterError as error:
        return _refused("sbatch", str(error))
    when = f", to start at {start:%Y-%m-%d %H:%M}" if start else ""
    return Finding(check="sbatch", level="ok", what=f"sbatch would take it{when}")


def of_preemption(partition: Partition, cluster: Cluster, *, requeues: bool) -> Finding:
    """Return what becomes of the job when one of higher priority wants its nodes."""
    if cluster.preempts_by_qos:
        what = f"partition {partition.name}: jobs are preempted for a better QOS, by the rules of the site"
        return Finding(check="preemption", level="note", what=what)
    grace = f"after {partition.grace_s} s of grace" if partition.grace_s else "at once"
    notice = _notice(partition, cluster)
    if partition.preemption == "off":
        return Finding(check="preemption", level="ok", what=f"partition {partition.name}: no job is preempted")
    if partition.preemption in ("suspend", "gang"):
        return Finding(
            check="preemption",
            level="warning",
            what=f"partition {partition.name}: a preempted job is stopped where it stands, and goes on later",
            why="ranks that wake at different times run into the timeouts of their collectives",
            advice="choose another --partition for long collectives, or expect a restart of the ranks",
        )
    if partition.preemption == "requeue" and requeues:
        what = f"partition {partition.name}: a preempted job goes back into the queue {grace}; {notice}"
        return Finding(check="preemption", level="ok" if partition.grace_s else "note", what=what)
    what = f"partition {partition.name}: a preempted job is cancelled {grace}; {notice}"
    if partition.grace_s and requeues:
        what += "; it puts itself back into the queue within the grace"
        return Finding(check="preemption", level="note", what=what)
    return Finding(
        check="preemption",
        level="warning",
        what=what,
        why="it does not come back by itself",
        advice="`submit --chain N` queues jobs that take over",
    )


def _notice(partition: Partition, cluster: Cluster) -> str:
    if partition.grace_s:
        return "the ranks are told at once, and save"
    told = "signalled before" if cluster.signals_on_preemption else "told by SIGTERM"
    return f"the ranks are {told}, and have {cluster.kill_wait_s} s to save"


def _refused(check: str, what: str) -> Finding:
    why = "nothing can be submitted" if check == "slurm" else "the job would be refused, or wait for ever"
    return Finding(check=check, level="error", what=what, why=why, status=ClusterError.exit_status)
