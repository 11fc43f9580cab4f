"""The sandbox of an ordinary user. Run by root, these tests make a user for it and remove it again."""

import os
import pwd
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from polling import until

import slurmddp

SOURCE = Path(slurmddp.__file__).parents[1]
USER = "slurmddp-test"

pytestmark = pytest.mark.usefixtures("slurm_programs")


@pytest.fixture(scope="module")
def python():
    """Return the command that runs Python as an ordinary user, who can read this package."""
    if os.getuid():
        yield [sys.executable, "-P"]
        return
    interpreter = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if interpreter is None or shutil.which("useradd", path="/usr/sbin") is None:
        reason = "root has no interpreter, or no useradd, to try this as an ordinary user"
        if os.environ.get("SLURMDDP_TESTS_REQUIRE_SLURM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    remove_user()  # that of a run that was interrupted
    subprocess.run(["useradd", "--create-home", USER], check=True)
    home = pwd.getpwnam(USER).pw_dir
    for package in (SOURCE / "slurmddp", Path(msgspec.__file__).parent):
        shutil.copytree(package, f"{home}/package/{package.name}")
    environment = [f"HOME={home}", f"USER={USER}", f"LOGNAME={USER}", f"PYTHONPATH={home}/package"]
    yield ["runuser", "-u", USER, "--", "env", "-C", home, *environment, interpreter, "-P"]
    remove_user()


def remove_user():
    """Remove the user if there is one; userdel ends with status 8 while a process of the user has not ended."""
    with suppress(KeyError):
        shutil.rmtree(f"/tmp/slurmddp-sandbox-{pwd.getpwnam(USER).pw_uid}", ignore_errors=True)  # noqa: S108  # theirs
        command = ["userdel", "--remove", USER]
        until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, 60)


LIFE = """
import os, pathlib, subprocess, tempfile
from slurmddp import sandbox

def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

running = sandbox.up(sandbox.Plan(name=f"user-{os.getpid()}"), die_with_parent=True)
os.environ.update(running.environment())
os.chdir(tempfile.mkdtemp())
pathlib.Path("job").write_text('''#!/bin/bash
id -un
srun sh -c 'echo "$(hostname) $CUDA_VISIBLE_DEVICES"' | sort -u
salloc --version >/dev/null && scontrol show hostnames "$SLURM_JOB_NODELIST"
''')
run("sbatch", "--wait", "--output=out", "-N2", "--ntasks-per-node=2", "--gpus-per-node=8", "job")
print(pathlib.Path("out").read_text(), end="")
print(pathlib.Path("out").stat().st_uid == os.getuid())
print(run("salloc", "-Q", "-N1", "sh", "-c", "squeue -h -o %T; srun --input=none hostname"), end="")
run("sbatch", "--hold", "--output=/dev/null", "--wrap", "true")
print(len(run("squeue", "-h", "-u", run("id", "-un").strip()).splitlines()))
running.kill("n2")
running.boot("n2")
print(run("srun", "-wn2", "hostname"), end="")
running.down()
print(running.files.folder.exists())
"""


def test_an_ordinary_user_has_a_cluster_too(python):
    result = subprocess.run([*python, "-c", LIFE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    user = USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    gpus = "0,1,2,3,4,5,6,7"
    job = [user, f"n1 {gpus}", f"n2 {gpus}", "n1", "n2", "True"]
    assert result.stdout.splitlines() == [*job, "RUNNING", "n1", "1", "n2", "False"]


def test_one_whose_parent_dies_leaves_nothing(python):
    script = (
        "import os; from slurmddp import sandbox;"
        "s = sandbox.up(sandbox.Plan(name=f'user-{os.getpid()}'), die_with_parent=True);"
        "print(s.files.folder, flush=True); os._exit(0)"
    )
    result = subprocess.run([*python, "-c", script], capture_output=True, text=True, check=True)
    folder = result.stdout.strip()
    wait = f"import os, time\nwhile os.path.exists({folder!r}): time.sleep(0.05)"
    subprocess.run([*python, "-c", wait], check=True, timeout=300)
