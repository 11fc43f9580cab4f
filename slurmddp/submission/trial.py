"""Asks sbatch what it says to a script, before the job is submitted. Nothing is queued."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from slurmddp.cluster.limits import waits_for_nodes
from slurmddp.cluster.request import Request
from slurmddp.errors import ClusterError, UsageError
from slurmddp.slurm import queries, sbatch_command
from slurmddp.slurm.client import LostAnswerError, RefusedError
from slurmddp.slurm.values import LATEST_START
from slurmddp.submission.submit_once import Notice

FORCE_HINT: Final = "--force submits it all the same"
_REFUSED: Final = {
    "node name": ("nodelist", "exclude"),
    "number of nodes": ("nodes", "nodelist"),
    "node configuration": ("constraint", "nodelist", "exclude"),
    "dependency": ("dependency",),
    "feature": ("constraint",),
    "reservation": ("reservation",),
    "account": ("account", "partition", "qos"),
    "qos": ("qos", "partition"),
}
"""The options that a refusal by sbatch is about, by words of its message."""
_BY_CONTROLLER: Final = "allocation failure"
"""In each refusal by the controller; others are by sbatch itself, which no --force changes."""
_TOO_LONG: Final = "parameter too long"
_LARGE_SCRIPT_B: Final = 10**6
"""Other values that Slurm finds too long are shorter, and so is its limit for a script, max_script_size."""
_NO_NODE: Final = "Invalid node name"


def ask_start(request: Request, text: bytes, environ: Mapping[str, str], notice: Notice) -> datetime | None:
    """Return when Slurm expects the job to start; None when it does not say.

    Raises ClusterError when it refuses, and for ranks and GPUs that depend on a cluster that did not answer.
    """
    spec = request.resolved.spec
    try:
        start = sbatch_command.expected_start(_test(request, text, environ))
    except LostAnswerError:
        start = None
    except RefusedError as error:
        if not (request.cluster and waits_for_nodes(spec, request.cluster)):
            hint = "" if _NO_NODE in str(error) else f"; {FORCE_HINT}"
            raise ClusterError(f"{error}{hint}") from error
        notice(f"the job waits for nodes that are down or drained now ({error})")
        return None
    if request.silence and not (spec.gpus_per_node or spec.ntasks_per_node):
        raise ClusterError(
            f"what a node has is not known ({request.silence}); give --gpus-per-node or --ntasks-per-node"
        )
    return start


def explain_answer(request: Request, script: bytes, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what sbatch says to the script, and the jobs that it depends on and that Slurm does not know."""
    said = _test(request, script, environ)
    start = sbatch_command.expected_start(said)
    far = start is not None and start - datetime.now(UTC) >= LATEST_START
    yield "it starts when the jobs before it end, which have no time limit" if far else said
    for job in re.findall(r"(?<![+\w])\d+", request.resolved.spec.dependency or ""):
        if not queries.show(job, environ):
            yield f"Slurm does not know job {job}: this job would not wait for it"


def _test(request: Request, text: bytes, environ: Mapping[str, str]) -> str:
    """Return what sbatch says to the script. Raises RefusedError or UsageError with the options that it is about."""
    try:
        return sbatch_command.test_only(text, environ)
    except RefusedError as error:
        names = next((names for words, names in _REFUSED.items() if words in str(error).lower()), ())
        shapes = [nodes.names for one in (request.cluster.partitions if request.cluster else ()) for nodes in one.nodes]
        there = f"; the nodes are {','.join(dict.fromkeys(shapes))}" if shapes and _NO_NODE in str(error) else ""
        if _TOO_LONG in str(error) and len(text) > _LARGE_SCRIPT_B:
            raise UsageError(
                f"the script has {len(text) / 10**6:.1f} MB, more than Slurm takes; put the lines into a file that "
                "--setup sources"
            ) from error
        given = [f"--{name} {value}" for name in names if (value := getattr(request.resolved.spec, name))]
        kind = RefusedError if _BY_CONTROLLER in str(error) else UsageError
        raise kind((f"{error} ({', '.join(given)})" if given else str(error)) + there) from error
