"""A submission leaves out the nodes that something speaks against, and says so; the user's own choice stays."""

import time

import pytest

from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.cluster.request import build_request
from slurmddp.config.resolve import build_record, resolve
from slurmddp.runs.node_evidence import PROOF, NodeEvidence
from slurmddp.runs.node_store import note
from slurmddp.submission.bad_nodes import leave_out_bad_nodes

BIG = Nodes(names="n[1-8]", count=8, state="idle", cpus=8, memory_mb=1000, features=("a100",))
OTHER = Nodes(names="m[1-4]", count=4, state="idle", cpus=8, memory_mb=1000)
CLUSTER = Cluster(
    name="c",
    partitions=(Partition(name="gpu", default=True, nodes=(BIG, OTHER)), Partition(name="few", nodes=(OTHER,))),
)


@pytest.fixture(autouse=True)
def known():
    now = time.time()
    bad = [NodeEvidence(now - 840, "c", node, "gpu-broken", PROOF, "Xid 79") for node in ("n3", "m2")]
    note([*bad, NodeEvidence(now, "another", "n5", "gpu-broken", PROOF, "Xid 79")], now)


def submitted(**options):
    """Return the value of --exclude in the script, and what is said."""
    said = []
    resolved = resolve(options={"job_name": "x", **options}, words=(), job_file=None, environ={})
    request = leave_out_bad_nodes(build_request(resolved, CLUSTER), said.append)
    assert "exclude" not in build_record(request.resolved, directory=".", version="1") or options.get("exclude")
    return dict(request.resolved.spec.header).get("exclude"), said


def test_each_node_is_told_in_a_line():
    assert submitted() == (
        "m2,n3",
        ["m2 is left out: Xid 79, 14m ago; --no-avoid uses it", "n3 is left out: Xid 79, 14m ago; --no-avoid uses it"],
    )


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ({"partition": "few"}, "m2"),
        ({"constraint": "a100"}, "n3"),
        ({"exclude": "n3,n4"}, "n3,n4,m2"),
        ({"nodelist": "n[1-4]", "nodes": "4"}, None),
        ({"nodes": "11"}, "m2"),
        ({"nodes": "12"}, None),
        ({"partition": "few", "nodes": "4"}, None),
        ({"avoid": False}, None),
    ],
)
def test_what_the_user_asks_for_stays_possible(options, excluded):
    assert submitted(**options)[0] == excluded
