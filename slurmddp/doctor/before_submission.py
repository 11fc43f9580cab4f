"""All checks of a job before it is queued, in the order in which it would fail.

Those of the variables that the job inherits, and of its stop notice, are here.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.python_check import check_python
from slurmddp.doctor.slurm_check import check_cluster
from slurmddp.doctor.storage import check_storage
from slurmddp.errors import UsageError
from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import build_script
from slurmddp.slurm.environment import scrubbed
from slurmddp.submission.compatibility import active_jobs

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
        more = f" and {len(removed) - _NAMED} more" if len(removed) > _NAMED else ""
        names = ", ".join(removed[:_NAMED])
        what = f"the job does not inherit {len(removed)} variables of another job or of sbatch: {names}{more}"
        yield _finding(level="note", what=what)
    for name, effect in SLOWING.items():
        if name not in own and environ.get(name, "") not in _OFF:
            what = f"the job inherits {name}={environ[name]}: {effect}"
            yield _finding(level="warning", what=what, why="it makes each step slower", advice=f"unset {name}")
    for name in _CHOOSING:
        if name not in own and environ.get(name):
            what = f"the job inherits {name}={environ[name]}, which must be correct on the nodes too"
            yield _finding(level="note", what=what, advice=f"unset {name}, or confirm it with --env {name}")
    if not spec.gpus and environ.get("CUDA_VISIBLE_DEVICES") and "CUDA_VISIBLE_DEVICES" not in own:
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
