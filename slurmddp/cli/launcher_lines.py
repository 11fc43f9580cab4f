"""A COMMAND that begins with another launcher, as `torchrun --nproc-per-node 8 train.py`: what it means here."""

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from slurmddp.cli.job_command import print_message
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.text import count

if TYPE_CHECKING:
    from slurmddp.cluster.request import Request


def fill(resolved: Resolved) -> "Request":
    """Return the job with the values of the cluster, and with the launcher's number of ranks.

    A rank has a GPU where the partition has GPUs. Prints how the launcher's line was read. Raises UsageError when the
    job has another number of ranks.
    """
    from slurmddp.cluster.request import build_request, fill_from_cluster

    request = fill_from_cluster(resolved, os.environ)
    changed = with_ranks(request.resolved, computed=request.computed)
    if changed is not request.resolved:
        request = (
            build_request(changed, request.cluster)
            if request.cluster
            else msgspec.structs.replace(request, resolved=changed)
        )
    spec = request.resolved.spec
    size = f"--gpus-per-node {spec.gpus_per_node}" if spec.gpus_per_node else f"--ntasks-per-node {spec.tasks_per_node}"
    print_reading(resolved, f"--nodes {spec.nodes} {size}")
    return request


def with_ranks(resolved: Resolved, computed: Collection[str] = ()) -> Resolved:
    """Return the job with the number of ranks that COMMAND's launcher asks for; the options in `computed` are open.

    Raises UsageError when the job has another number of ranks.
    """
    spec, launch = resolved.spec, resolved.launch
    ranks = launch and launch.ranks_per_node
    if launch is None or ranks is None or ranks == spec.tasks_per_node:
        return resolved
    if spec.ntasks_per_node or (spec.gpus_per_node and "gpus-per-node" not in computed):
        own = count(spec.tasks_per_node, "rank")
        raise UsageError(f"the job has {own} on a node, but {launch.name} asks for {ranks}; give one of them")
    number = {"gpus_per_node": str(ranks)} if spec.gpus_per_node else {"ntasks_per_node": ranks}
    open_again = {JOB_FIELDS[key].name: JOB_FIELDS[key].default for key in computed}
    return resolved.replace(f"the options of {launch.name}", **open_again | number)


def print_reading(resolved: Resolved, meaning: str) -> None:
    """Print what the launcher that COMMAND begins with means here, and which of its options have no meaning."""
    if launch := resolved.launch:
        left_out = f"; left out: {' '.join(launch.left_out)}" if launch.left_out else ""
        print_message(f"slurmddp starts the ranks itself: {launch.name} is read as {meaning}{left_out}")
