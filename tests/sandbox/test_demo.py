"""The demo chooses between Slurm and this machine alone, and ends with what went wrong. `slurmddp` is a stand-in."""

import subprocess
from pathlib import Path

import pytest

DEMO = Path(__file__).parent.parent.parent / "jobs" / "demo.sh"


@pytest.fixture
def demo(tmp_path):
    """Return a function that runs the demo where `sandbox up` ends with a status; it returns its calls too."""

    def run(up: int = 0, status: int = 1, submit: int = 0, **environ: str):
        program = tmp_path / "slurmddp"
        program.write_text(
            f"""#!/bin/sh
echo "$*" >>calls
case "$1 $2" in
  "sandbox up") exit {up} ;;
  "sandbox status") exit {status} ;;
  "sandbox env") echo "export X=1" ;;
  "submit "*) echo 4711; exit {submit} ;;
esac
"""
        )
        program.chmod(0o755)
        done = subprocess.run(
            ["bash", str(DEMO)],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        calls = [" ".join(line.split()[:2]) for line in (tmp_path / "calls").read_text().splitlines()]
        return done, calls

    return run


UP = ["sandbox status", "sandbox up"]
TRAINED = [*UP, "sandbox env", "submit jobs/mnist.toml"]


@pytest.mark.parametrize(
    ("options", "status", "calls", "said"),
    [
        ({}, 0, [*TRAINED, "sandbox down"], ""),
        ({"KEEP": "1"}, 0, TRAINED, "still up"),
        ({"status": 0}, 0, ["sandbox status", "sandbox env", "submit jobs/mnist.toml"], "is up; it is used"),
        ({"up": 3}, 0, [*UP, "run jobs/mnist.toml"], ""),
        ({"up": 1}, 1, UP, ""),
        ({"up": 2}, 2, UP, ""),
        ({"up": 130}, 130, UP, ""),
        ({"submit": 1}, 1, [*TRAINED, "sandbox down"], ""),
    ],
    ids=["its own cluster", "kept", "one that is up", "without Slurm", *("no cluster",) * 3, "a job that fails"],
)
def test_it_trains_on_slurm_or_here_and_ends_what_it_started(demo, options, status, calls, said):
    done, called = demo(**options)
    assert (done.returncode, called) == (status, calls)
    assert said in done.stdout and "4711" not in done.stdout
    assert ("still up" in done.stdout) == (options.get("KEEP") == "1" or options.get("status") == 0)
