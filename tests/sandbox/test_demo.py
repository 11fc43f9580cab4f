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


def test_it_trains_on_a_cluster_of_its_own_and_ends_that(demo):
    done, calls = demo(up=0)
    assert done.returncode == 0
    assert calls == [
        "sandbox status",
        "sandbox up",
        "sandbox env",
        "submit jobs/mnist.toml",
        "sandbox down",
    ]
    assert "4711" not in done.stdout


def test_it_keeps_the_cluster_when_asked(demo):
    done, calls = demo(up=0, KEEP="1")
    assert "sandbox down" not in calls
    assert "still up" in done.stdout


def test_it_uses_the_cluster_that_is_up_and_leaves_it(demo):
    done, calls = demo(status=0)
    assert done.returncode == 0
    assert calls == ["sandbox status", "sandbox env", "submit jobs/mnist.toml"]
    assert "is up; it is used" in done.stdout and "still up" in done.stdout


def test_without_slurm_it_trains_here(demo):
    done, calls = demo(up=3)
    assert done.returncode == 0
    assert calls == ["sandbox status", "sandbox up", "run jobs/mnist.toml"]


@pytest.mark.parametrize("up", [1, 2, 130])
def test_any_other_failure_is_the_demos(demo, up):
    done, calls = demo(up=up)
    assert done.returncode == up
    assert not {"run jobs/mnist.toml", "submit jobs/mnist.toml"} & set(calls)


def test_a_job_that_fails_fails_the_demo_and_ends_the_cluster(demo):
    done, calls = demo(up=0, submit=1)
    assert done.returncode == 1
    assert calls[-1] == "sandbox down"
