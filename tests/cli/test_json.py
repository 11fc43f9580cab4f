"""What every command prints with --json, on a real Slurm: one object, with lists, and the names of docs/json.md."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from polling import until

from slurmddp.cli import group

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
WAITS = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
SHAPE = ("-N1", "--ntasks-per-node=1", "-c1", "--no-preflight")


def commands(parent: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands that have --json; `sweep results` is behind another."""
    context = click.Context(parent)
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif any("--json" in option.opts for option in command.params):
            yield " ".join((*path, name))


def listed() -> dict[str, list[str]]:
    """Return the lists of each command, by the table of the page."""
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", PAGE.read_text().partition("The same thing")[0], re.MULTILINE)
    lists = {name: re.findall(r"`(\w+)`", lists) for names, lists in rows for name in re.findall(r"`([^`]+)`", names)}
    return {name: found for name, found in lists.items() if found or name == "logs"}


def test_the_page_has_every_command():
    page = set(listed())
    others = {"sweep results", "diagnose --all", "submit --dry-run", "report --all", "report SWEEP"}
    assert set(commands(group)) | others == page


@pytest.fixture
def call(slurm_env, tmp_path):
    """Return a function that runs a command line with --json, checks the form, and returns what it printed."""
    (tmp_path / "train.py").write_text(WAITS)
    (tmp_path / "boom.py").write_text("raise ValueError('boom')\n")
    environ = slurm_env | {"XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}

    def run(command: str, *words: str, status: int = 0) -> Any:
        line = [sys.executable, "-m", "slurmddp", *command.split(), "--json", *words]
        done = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == status, (line, done.stdout, done.stderr)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert found and (command == "logs" or len(found) == 1), line
        for one in found:
            assert one["schema"] == 1 and "job" not in names(one), line
            assert all(isinstance(one[name], list) for name in listed()[command]), line
        return found[0]

    return run


def names(value: Any) -> set[str]:
    """Return all names in a value."""
    if isinstance(value, dict):
        return set(value).union(*map(names, value.values()))
    return set().union(*map(names, value)) if isinstance(value, list) else set()


@pytest.mark.slurm
def test_every_command_prints_one_object_with_the_names_of_the_page(call, slurm, wait_for_job, tmp_path):
    (submitted,) = call("submit", *SHAPE, "train.py")["jobs"]
    job_id, own = submitted["job_id"], {"name": "train", "run": str(tmp_path / "jobs/train")}
    assert own.items() <= submitted.items()
    wait_for_job(job_id, "RUNNING")
    until((tmp_path / f"jobs/train/logs/{job_id}/0.0/0.out").exists)
    (shown,) = call("status", "train")["jobs"]
    assert ({"job_id": job_id} | own).items() <= shown.items() and shown["total_s"] >= 0
    assert call("logs", "train")["job_id"] == call("stacks", "train")["job_id"] == job_id
    assert [job["job_id"] for job in call("requeue", "train")["jobs"]] == [job_id]
    assert [job["job_id"] for job in call("cancel", "train")["jobs"]] == [job_id]
    assert call("submit --dry-run", *SHAPE, "boom.py")["jobs"][0]["text"].startswith("#!")
    (failed,) = call("submit", *SHAPE, "--wait", "boom.py", status=1)["jobs"]
    assert failed["outcome"] == "failed" and failed["diagnosis"]["job_id"] == failed["job_id"]
    assert call("diagnose", "boom")["diagnoses"] == [failed["diagnosis"]]
    (failure,) = call("diagnose --all")["failures"]
    assert (failure["job_id"], failure["name"]) == (failed["job_id"], "boom")
    report = call("report", "boom")
    assert report["jobs"] == [{"job_id": failed["job_id"]}] and report["attempts"][0]["job_id"] == failed["job_id"]
    assert {one["name"] for one in call("report --all")["runs"]} == {"boom", "train"}
    (array,) = call("sweep", *SHAPE, "--hold", "--name", "s", "--set", "n=1,2", "train.py", "{n}")["jobs"]
    assert [one["run"] for one in call("sweep results", "s")["results"]] == [f"{tmp_path}/jobs/s/n={n}" for n in (1, 2)]
    slurm("scancel", array["job_id"])
    here = call("run", "--ntasks-per-node", "1", "--name", "here", "boom.py", status=1)["jobs"]
    assert (here[0]["run"], here[0]["status"]) == (f"{tmp_path}/jobs/here", 1)
    assert call("cluster")["partitions"][0]["nodes"][0]["free_gpus"] >= 0
    assert call("nodes")["nodes"] == []
    assert call("doctor", *SHAPE, "boom.py")["status"] == 0
    assert call("config", *SHAPE, "boom.py")["values"]["nodes"]["value"] == 1
    save = "import torch\nfor name in 'ab':\n    torch.save({'w': torch.ones(2)}, name + '.pt')\n"
    subprocess.run([sys.executable, "-c", save], cwd=tmp_path, check=True)
    assert call("compare", "a.pt", "b.pt")["differences"] == []
    words = ("--gpus", "1", "--ntasks-per-node", "1", "-c1", "--no-preflight", "--steps", "10", "--warm-up", "2")
    assert call("scale", *words, "--task", "linear")["points"][0]["gpus"] == 1
    assert call("sandbox status", "--name", f"none-{os.getpid()}", status=1)["nodes"] == []
