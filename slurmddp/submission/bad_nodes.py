"""Leaves out, at a submission, the nodes that something speaks against. Reads what is known of them; starts nothing."""

import time
from collections.abc import Callable

import msgspec

from slurmddp.cluster.defaults import fitting_nodes
from slurmddp.cluster.request import Request
from slurmddp.runs.node_evidence import nodes_to_avoid
from slurmddp.runs.node_store import read_evidence
from slurmddp.slurm.hostlist import names_in


def leave_out_bad_nodes(request: Request, notice: Callable[[str], None]) -> Request:
    """Return the job without the nodes of its partition that something speaks against; tell each of them, and why.

    Nothing changes with `--no-avoid`, and where the partition is not known.
    """
    spec, cluster = request.resolved.spec, request.cluster
    partition = next(cluster.partitions_of(spec.partition), None) if cluster else None
    if cluster is None or partition is None or not spec.avoid or not (evidence := read_evidence(cluster.name)):
        return request
    nodes = names_in(*(group.names for group in fitting_nodes(spec, partition))) - names_in(spec.exclude)
    now = time.time()
    found = nodes_to_avoid(evidence, now, nodes, wanted=names_in(spec.nodelist), needed=spec.allocated_nodes)
    for suspect in found:
        notice(f"{suspect.node} is left out: {suspect.describe(now)}; --no-avoid uses it")
    job = msgspec.structs.replace(spec, avoided=tuple(suspect.node for suspect in found))
    return msgspec.structs.replace(request, resolved=msgspec.structs.replace(request.resolved, spec=job))
