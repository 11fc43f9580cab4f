"""Which nodes are left out: proofs, hints with only the node in common, what is forgotten, and how many at most."""

import json
import os

import pytest

from slurmddp.runs import node_store, registry
from slurmddp.runs.node_evidence import HINT, PROOF, STRAGGLER, NodeEvidence, find_suspects, nodes_to_avoid

NOW, HOUR = 1_795_300_000.0, 3600.0
TWENTY = [f"n{number}" for number in range(1, 21)]


def seen(node="n3", strength=PROOF, *, ago=60.0, run="a", source="gpu-broken", **more):
    return NodeEvidence(NOW - ago, "c", node, source, strength, "Xid 79", run=run, job="7", attempt="0.0")._replace(
        **more
    )


def avoided(*evidence, nodes=TWENTY, **more):
    return [suspect.node for suspect in nodes_to_avoid(evidence, NOW, nodes, **more)]


def slow(node, rank, **more):
    return seen(node, HINT, source=STRAGGLER, rank=rank, **more)


@pytest.mark.parametrize(
    ("evidence", "left_out"),
    [
        ([seen()], ["n3"]),
        ([seen(strength=HINT)], []),
        ([seen(strength=HINT), seen(strength=HINT, attempt="0.1")], []),
        ([seen(strength=HINT), seen(strength=HINT, run="b")], ["n3"]),
        ([seen(strength=HINT), seen("n4", HINT, run="b")], []),
        ([seen(strength=HINT, peer="n1"), seen(strength=HINT, peer="n1", run="b")], []),
        ([seen(strength=HINT, peer="n1"), seen(strength=HINT, peer="n2", run="b")], ["n3"]),
        ([slow("n3", 1)], []),
        ([slow("n3", 1), slow("n3", 1, attempt="1.0")], []),
        ([slow("n3", 1), slow("n3", 2)], []),
        ([slow("n3", 1), slow("n3", 2, attempt="1.0")], ["n3"]),
        ([slow("n3", 1), slow("n3", 1, run="b")], ["n3"]),
        ([slow("n3", 1), slow("n4", 1, attempt="1.0"), slow("n3", 1, run="b")], []),
    ],
    ids=[
        *("proof", "hint", "twice in a run", "in two runs", "on two nodes", "same connection", "other connection"),
        *("slow", "slow again", "two slow ranks at once", "slow with another rank", "slow in two runs"),
        "slow wherever the rank is",
    ],
)
def test_it_takes_a_proof_or_two_hints_that_have_only_the_node_in_common(evidence, left_out):
    assert avoided(*evidence) == left_out


def test_it_is_forgotten_two_hours_after_the_last_was_seen():
    old = seen(ago=2 * HOUR)
    assert avoided(old) == []
    assert avoided(seen(ago=2 * HOUR - 1)) == ["n3"]
    assert avoided(old, seen(strength=HINT, ago=HOUR)) == ["n3"], "the last was an hour ago"
    assert avoided(seen(ago=5 * HOUR), seen(strength=HINT)) == [], "it had been forgotten in between"


def test_at_most_a_quarter_is_left_out_and_never_what_the_job_needs():
    bad = [seen(node, ago=number) for number, node in enumerate(TWENTY)]
    assert avoided(*bad) == TWENTY[:5]
    assert avoided(*bad, wanted=["n1", "n2"]) == TWENTY[2:7]
    assert avoided(*bad, left_out=["n1", "n9"]) == TWENTY[1:4]
    assert avoided(*bad, needed=18) == TWENTY[:2]
    assert avoided(*bad, needed=20) == avoided(*bad, needed=40) == []
    assert avoided(seen(), nodes=["n1", "n2", "n3"]) == [], "of three nodes none is a quarter"
    assert avoided(seen("x1")) == [], "it is in another partition"


def test_it_is_told_in_few_words():
    (suspect,) = find_suspects([seen(ago=840), seen(ago=900), seen(source="other", strength=HINT, ago=950)], NOW)
    assert suspect.describe(NOW) == "Xid 79 (2 times), 14m ago"


def test_what_is_noted_is_read_again_by_all_runs_of_this_user_alone(monkeypatch):
    path = registry.state_file("nodes.jsonl")
    assert node_store.read_evidence() == []
    noted = [seen(), slow("n4", 2), seen("n5", run="b", cluster="d")]
    node_store.note(noted[:1], NOW)
    node_store.note(noted[1:], NOW)
    assert node_store.read_evidence() == noted
    assert node_store.read_evidence("d") == noted[2:]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr("slurmddp.trust._is_trusted_owner", lambda info: info.st_uid == 4711)
    assert node_store.read_evidence() == [], "it belongs to somebody else"


WRONG = [
    '{"time": 1.0, "cluster": "c"',
    "[]",
    json.dumps({**seen()._asdict(), "node": "n1,n2 --wrap"}),
    json.dumps({**seen()._asdict(), "time": "now"}),
    json.dumps({**seen()._asdict(), "what": 7}),
    json.dumps({**seen()._asdict(), "rank": "one"}),
    json.dumps({"time": NOW, "node": "n3"}),
]


def test_a_damaged_line_is_left_out():
    node_store.note([seen()], NOW)
    path = registry.state_file("nodes.jsonl")
    path.write_text("\n".join([*WRONG, path.read_text()]))
    assert node_store.read_evidence() == [seen()]


def test_a_large_file_keeps_only_what_is_not_forgotten():
    node_store.note([seen(ago=9 * HOUR)] * 2000, NOW)
    node_store.note([seen("n5")], NOW)
    node_store.note([seen("n6")], NOW)
    assert [one.node for one in node_store.read_evidence()] == ["n5", "n6"]
