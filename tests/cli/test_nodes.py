"""`slurmddp nodes`: what speaks against which node, and how to change it."""

import json
import re
import time

import pytest

from slurmddp import cli
from slurmddp.runs.node_evidence import HINT, PROOF, NodeEvidence
from slurmddp.runs.node_store import note


@pytest.fixture
def noted():
    now = time.time()
    head = {"run": "/home/me/jobs/train", "job": "17", "attempt": "0.0"}
    xid = "the driver lost a GPU: the node must be restarted (Xid 79)"
    note(
        [
            NodeEvidence(now - 3000, "c", "n3", "segfault", HINT, "a native library crashed", **head),
            NodeEvidence(now - 845, "c", "n3", "gpu-broken", PROOF, xid, **head),
            NodeEvidence(now - 600, "c", "n2", "straggler", HINT, "rank 1 was slow", **head, rank=1),
            NodeEvidence(now - 9000, "c", "n1", "gpu-broken", PROOF, xid, **head),
        ],
        now,
    )


def shown(capsys, *words, status=0):
    assert cli.run_command_line(["nodes", *words]) == status
    return capsys.readouterr()


@pytest.mark.usefixtures("noted")
def test_a_row_for_each_thing_with_its_age(capsys):
    lines = re.sub(r"\d+m(\d+s)? ago", "AGE ago", shown(capsys).out).splitlines()
    assert [re.sub(" +", " ", line) for line in lines] == [
        "NODE NEXT START SEEN RUN JOB EVIDENCE",
        "n2 used AGE ago train 17 rank 1 was slow (hint)",
        "n3 left out AGE ago train 17 the driver lost a GPU: the node must be restarted (Xid 79) (proof)",
        "n3 left out AGE ago train 17 a native library crashed (hint)",
    ]


@pytest.mark.usefixtures("noted")
def test_nodes_of_two_clusters_have_the_names_of_theirs(capsys):
    now = time.time()
    note([NodeEvidence(now, "d", "n3", "segfault", HINT, "a native library crashed")], now)
    assert [line.split()[0] for line in shown(capsys).out.splitlines()] == ["NODE", "d:n3", "c:n2", "c:n3", "c:n3"]


@pytest.mark.usefixtures("noted")
def test_all_of_it_as_json(capsys):
    rows = json.loads(shown(capsys, "--json").out)["nodes"]
    assert [(row["node"], row["source"], row["left_out"]) for row in rows] == [
        *(("n2", "straggler", False), ("n3", "segfault", True), ("n3", "gpu-broken", True)),
    ]
    assert rows[2]["time"] == pytest.approx(time.time() - 845, abs=60)
    assert rows[2]["run"] == "/home/me/jobs/train"


@pytest.mark.usefixtures("noted")
def test_a_node_can_be_forgotten(capsys):
    assert "n3" not in shown(capsys, "--forget", "n[2-3]").out
    assert shown(capsys, "--forget", "n3", status=2).err == (
        "Error: --forget: nothing speaks against 'n3'; something does against n1\n"
    )
    assert shown(capsys, "--forget", "n1").err == "nothing speaks against a node\n"
    assert "something does against no node" in shown(capsys, "--forget", "n1", status=2).err
