"""--stage-env on a real Slurm: the ranks run the copy, it is kept, and no job is lost without it."""

import os
import re
import sys
from pathlib import Path

import pytest
from polling import until

REPOSITORY = Path(__file__).parent.parent
REPORT = """
import os, sys, time
print("at", sys.prefix, os.environ["VIRTUAL_ENV"], sep="|", flush=True)
time.sleep(float(sys.argv[1]) if os.environ["SLURMDDP_RESTARTS"] == "0" else 0)
"""

pytestmark = pytest.mark.long


@pytest.fixture
def environment(small_environment):
    """A virtual environment that finds torch and slurmddp in those of the tests."""
    found = [path for path in sys.path if path.endswith("site-packages")]
    (packages,) = small_environment.glob("lib/*/site-packages")
    (packages / "tests.pth").write_text("\n".join([*found, str(REPOSITORY)]))
    return small_environment


@pytest.fixture
def submit(cli, tmp_path, environment):
    """Submit a job that stages its environment; a lone rank need not import torch."""
    (tmp_path / "train.py").write_text(REPORT)

    def run(name, *words, nodes=1, seconds=0):
        options = [f"--nodes={nodes}", "--ntasks-per-node=1", f"--name={name}", f"--stage-env={tmp_path}/no des"]
        return cli("submit", *options, f"--python={environment}/bin/python", *words, "train.py", str(seconds))

    return run


def log(folder, name):
    return "".join(path.read_text() for path in (folder / "jobs" / name).glob("logs/*.out"))


def prefixes(folder, name):
    """The prefix and VIRTUAL_ENV of each rank in each attempt."""
    outputs = (folder / "jobs" / name).glob("logs/*/*/[0-9].out")
    return [line.split("|")[1:] for path in outputs for line in path.read_text().splitlines() if line.startswith("at|")]


def copies(folder):
    return {path.name for path in (folder / "no des").glob("slurmddp-*/*")}


def test_ranks_run_the_copy_which_is_replaced_and_never_needed(submit, environment, tmp_path, slurm, wait_for_job):
    assert "packed" in submit("first", "--wait", nodes=2).stderr
    assert "unpacked in" in log(tmp_path, "first")
    (first,) = copies(tmp_path)
    (folder,) = (tmp_path / "no des").glob("slurmddp-*")
    assert prefixes(tmp_path, "first") == [[str(folder / first / "env")] * 2] * 2

    (environment / "new.py").touch()
    assert "packed" in submit("changed", "--wait", "--launcher=torchrun").stderr
    (changed,) = copies(tmp_path) - {first}
    assert prefixes(tmp_path, "changed") == [[str(folder / changed / "env")] * 2]

    (environment / "newer.py").touch()
    held = submit("broken", "--hold").stdout.strip()
    for archive in (tmp_path / "jobs").glob(".environments-*/*.tar"):
        os.truncate(archive, 100_000)
    slurm("scontrol", "release", held)
    wait_for_job(held)
    assert re.search(r"\.tar is damaged.*; the ranks use the shared environment\n", log(tmp_path, "broken"))
    assert prefixes(tmp_path, "broken") == [[str(environment)] * 2]
    assert copies(tmp_path) == {changed}, "of two that no job uses, the last used stays"


@pytest.mark.usefixtures("long_grace")
def test_a_preempted_job_finds_its_copy_and_so_does_the_next(submit, tmp_path, sandbox, wait_for_job):
    job = submit("preempted", "--partition=low", seconds=300).stdout.strip()
    until(lambda: prefixes(tmp_path, "preempted"))
    sandbox.preempt(job)
    wait_for_job(job)
    said = log(tmp_path, "preempted")
    assert (said.count("unpacked in"), said.count("was there")) == (1, 1), said
    assert "attempt 1.0, ended with status 0" in said
    assert "packed" not in submit("next", "--wait", "--launcher=fork").stderr
    assert "was there" in log(tmp_path, "next")
    (key,) = copies(tmp_path)
    found = prefixes(tmp_path, "preempted") + prefixes(tmp_path, "next")
    assert len(found) == 3 and all(f"/{key}/env" in place for places in found for place in places)
