"""--stage-env on a real Slurm: the ranks run the copy, it is kept, and no job is lost without it."""

import subprocess
import sys
from pathlib import Path

import pytest
from polling import until

SLURMDDP = Path(sys.executable).parent / "slurmddp"
REPOSITORY = Path(__file__).parent.parent
REPORT = """
import os, sys, time
print("at", sys.prefix, os.environ["VIRTUAL_ENV"], flush=True)
time.sleep(float(sys.argv[1]) if os.environ["SLURMDDP_RESTARTS"] == "0" else 0)
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def environment(tmp_path):
    """A virtual environment that finds torch and slurmddp in those of the tests."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    found = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "tests.pth").write_text("\n".join([*found, str(REPOSITORY)]))
    return folder


@pytest.fixture
def submit(slurm_env, tmp_path, environment):
    """Submit a job of two nodes that stages its environment."""
    (tmp_path / "train.py").write_text(REPORT)

    def run(name, *words, seconds=0):
        options = ["--nodes=2", "--ntasks-per-node=1", f"--name={name}", f"--stage-env={tmp_path}/no des"]
        command = [SLURMDDP, "submit", *options, f"--python={environment}/bin/python", *words, "train.py", seconds]
        done = subprocess.run(
            [*map(str, command)],
            cwd=tmp_path,
            env={**slurm_env, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + log(tmp_path, name)
        return done

    return run


def log(folder, name):
    return "".join(path.read_text() for path in (folder / "jobs" / name).glob("logs/*.out"))


def prefixes(folder, name):
    """The prefix and VIRTUAL_ENV of each rank in each attempt."""
    outputs = (folder / "jobs" / name).glob("logs/*/*/[0-9].out")
    return [line.split()[1:] for path in outputs for line in path.read_text().splitlines() if line.startswith("at ")]


def copies(folder):
    return {path.name for path in (folder / "no des").glob("slurmddp-*/*")}


def test_ranks_run_the_copy_which_is_kept_and_replaced_and_never_needed(
    submit, environment, tmp_path, sandbox, slurm, wait_for_job
):
    assert "packed" in submit("first", "--wait").stderr
    (key,) = copies(tmp_path)
    place = str(next((tmp_path / "no des").glob("slurmddp-*")) / key / "env")
    printed = "".join(path.read_text() for path in (tmp_path / "jobs/first").glob("logs/*/0.0/*.out"))
    assert printed.count(f"at {place} {place}\n") == 2, log(tmp_path, "first")
    assert "unpacked in" in log(tmp_path, "first")

    for launcher in ("fork", "torchrun"):
        assert "packed" not in submit(launcher, "--wait", f"--launcher={launcher}").stderr
        assert "was there" in log(tmp_path, launcher)
    assert copies(tmp_path) == {key}

    job = submit("preempted", "--partition=low", seconds=300).stdout.strip()
    until(lambda: prefixes(tmp_path, "preempted"))
    sandbox.preempt(job)
    wait_for_job(job)
    assert log(tmp_path, "preempted").count("was there") == 2
    assert "attempt 1.0, ended with status 0" in log(tmp_path, "preempted")

    (environment / "new.py").touch()
    assert "packed" in submit("changed", "--wait").stderr
    assert len(copies(tmp_path)) == 2

    (environment / "newer.py").touch()
    held = submit("broken", "--hold").stdout.strip()
    for archive in (tmp_path / "jobs").glob(".environments-*/*.tar"):
        archive.write_bytes(archive.read_bytes()[:-100_000])
    slurm("scontrol", "release", held)
    wait_for_job(held)
    assert ".tar is damaged: unexpected end of data; the ranks use the shared environment" in log(tmp_path, "broken")
    assert prefixes(tmp_path, "broken") == [[str(environment)] * 2] * 2
    assert len(copies(tmp_path)) == 1, "of two that no job uses, the last used stays"
