"""A node that breaks is left out on a real Slurm: by the requeue of its job, and by the next job of another run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp import sandbox as slurm_sandbox
from slurmddp.runs.node_store import read_evidence

PROGRAM = """
import os, sys, time
if os.uname().nodename == "n2" and sys.argv[1] != "well":
    time.sleep(0.3)
    raise RuntimeError(sys.argv[1])
time.sleep(2 if sys.argv[1] == "well" or os.environ["SLURMDDP_ATTEMPT"] != "0.0" else 60)
"""


@pytest.fixture
def submit(slurm_programs, tmp_path, monkeypatch):
    """Return a function that submits the program, and waits; in a cluster of four nodes."""
    del slurm_programs
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)
    plan = slurm_sandbox.Plan(name=f"nodes-{os.getpid()}", nodes=4, gpus_per_node=0, cpus_per_node=8)
    cluster = slurm_sandbox.up(plan, die_with_parent=True)

    def run(name, *words, options=()):
        line = [sys.executable, "-m", "slurmddp", "submit", "-N", "3", "--name", name, "--ntasks-per-node", "1"]
        environ = {**os.environ, **cluster.environment()}
        command = [*line, "--wait", "--json", *options, "train.py", *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        (job,) = json.loads(done.stdout)["jobs"]
        shown = ["scontrol", "-o", "show", "job", job["job_id"]]
        shown = subprocess.run(shown, env=environ, capture_output=True, text=True, check=True).stdout
        return job, dict(word.partition("=")[::2] for word in shown.split()), done.stderr

    yield run
    cluster.down()


@pytest.mark.slurm
def test_a_broken_node_is_left_out_by_the_requeue_and_by_the_next_run(submit):
    _, shown, said = submit("decoy", "a bug of mine", options=["--max-restarts", "0"])
    assert (shown["JobState"], read_evidence()) == ("FAILED", [])
    job, shown, _ = submit("broken", "CUDA error: uncorrectable ECC error encountered")
    assert (job["state"], shown["ExcNodeList"], shown["NodeList"]) == ("COMPLETED", "n2", "n[1,3-4]")
    assert [(one.node, one.strength) for one in read_evidence()] == [("n2", "proof")]
    _, shown, said = submit("other", "well")
    assert "n2 is left out: the memory or a link of a GPU is broken" in said
    assert (shown["ExcNodeList"], shown["NodeList"]) == ("n2", "n[1,3-4]")
    assert submit("use-it", "well", options=["--no-avoid"])[1]["ExcNodeList"] == "(null)"
