"""What surrounds the ranks: the variables that travel with the job, and the lines that make its environment."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from slurmddp.config.job_spec import JobSpec
from slurmddp.runs.findings import Finding
from slurmddp.slurm.environment import submission_environment

SLOWING: Final = {
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for",
    "NCCL_IB_DISABLE": "NCCL leaves InfiniBand alone",
    "NCCL_P2P_DISABLE": "GPUs of a node exchange by way of memory",
    "NCCL_SHM_DISABLE": "ranks of a node exchange by way of the network",
    "TORCH_DISTRIBUTED_DEBUG": "with DETAIL every collective is checked",
}
"""Left-overs of a search for errors, and what they do."""
_OFF: Final = ("", "0", "OFF", "off", "INFO")
_CHOOSING: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_NET", "NCCL_ALGO", "NCCL_PROTO")
_NAMED: Final = 6


def check_variables(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which variables are kept from the job, and which travel with it and matter."""
    own = {item.partition("=")[0] for item in spec.variables}
    for name in sorted(own - set(environ) - {item.partition("=")[0] for item in spec.variables if "=" in item}):
        yield Finding(
            check="variables",
            level="error",
            what=f"--env {name}: {name} is not set here",
            why="nothing would travel",
            advice=f"export {name}, or give --env {name}=VALUE",
            status=2,
        )
    kept_out = sorted(set(environ) - set(submission_environment(environ)))
    if kept_out:
        what = f"{len(kept_out)} variables of another job or of sbatch do not travel: {_some(kept_out)}"
        yield Finding(check="variables", level="note", what=what)
    for name, effect in SLOWING.items():
        if name not in own and environ.get(name, "") not in _OFF:
            yield Finding(
                check="variables",
                level="warning",
                what=f"{name}={environ[name]} travels with the job: {effect}",
                why="it makes each step slower",
                advice=f"unset {name}",
            )
    for name in _CHOOSING:
        if name not in own and environ.get(name):
            yield Finding(
                check="variables",
                level="note",
                what=f"{name}={environ[name]} travels with the job; it must be right on the nodes, too",
                advice=f"unset {name}, or mean it by --env {name}",
            )
    if not spec.gpus and environ.get("CUDA_VISIBLE_DEVICES") and "CUDA_VISIBLE_DEVICES" not in own:
        yield Finding(
            check="variables",
            level="warning",
            what=f"CUDA_VISIBLE_DEVICES={environ['CUDA_VISIBLE_DEVICES']} travels with a job that asks for no GPUs",
            why="its ranks take GPUs that Slurm has not given to them",
            advice="ask by --gpus-per-node, or unset CUDA_VISIBLE_DEVICES",
        )


def check_lines(spec: JobSpec) -> Iterator[Finding]:
    """Yield the set-up lines whose failure a pipe hides."""
    guarded = False
    for line in _lines(spec):
        guarded = guarded or bool(re.search(r"\bset\s.*-?o?\s*pipefail\b", line))
        if not guarded and has_pipe(line):
            yield Finding(
                check="setup",
                level="warning",
                what=f"the set-up line {line.strip()!a} is a pipe",
                why="when its first command fails, nobody hears of it: the status is the last one's",
                advice="put `set -o pipefail` on a line before it",
            )


def has_pipe(line: str) -> bool:
    """Tell whether a shell line passes one command's output to another."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    try:
        return any(word in ("|", "|&") for word in words)
    except ValueError:  # a quote that ends on another line
        return False


def check_notice(spec: JobSpec) -> Iterator[Finding]:
    """Yield when the ranks are told to stop, and what becomes of the job then."""
    limit = f"the time limit {spec.time}" if spec.time else "the partition's time limit"
    what = f"the ranks are told to stop {spec.lead_s} s before the end of {limit}"
    if spec.requeue:
        yield Finding(check="notice", level="ok", what=f"{what}; the job then goes back into the queue")
        return
    yield Finding(
        check="notice",
        level="warning",
        what=f"{what}, and with --no-requeue the job does not come back",
        why="what is left of the training waits for you",
        advice="leave out --no-requeue, or let others take over by `submit --chain N`",
    )


def _lines(spec: JobSpec) -> Iterable[str]:
    try:
        in_file = Path(spec.setup_file).read_text(errors="replace").splitlines() if spec.setup_file else []
    except OSError:  # told by the script's own check
        in_file = []
    return [*in_file, *spec.setup]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
