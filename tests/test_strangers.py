"""What another user of the machine can do to a job on a real Slurm: nothing that runs, nothing that is overwritten."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import slurmddp

from slurmddp.config.job_spec import JobSpec
from slurmddp.script.environment import read_environment

MALLORY = 12002
PLANTED = "import pathlib; pathlib.Path('PWNED').touch()\n"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")


def plant(folder: Path) -> None:
    """Give a folder, with all that is in it, to another user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)


@pytest.fixture
def place(tmp_path):
    """A folder with a script of its owner."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    return tmp_path


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_run_that_was_replaced_while_it_waited_starts_nothing(place, slurm_env, slurm, wait_for_job, is_linked):
    """Finding: the planted code ran as the owner of the job, which was COMPLETED."""
    job = slurmddp(
        "submit", "--ntasks-per-node=1", "--snapshot", "--hold", "train.py", cwd=place, environ=slurm_env
    ).strip()
    run = place / "jobs" / "train"
    (code,) = (run / "code").iterdir()
    planted = place / "theirs"
    shutil.copytree(run, planted)
    (planted / "code" / code.name / "train.py").chmod(0o644)
    (planted / "code" / code.name / "train.py").write_text(PLANTED)
    plant(planted)
    run.rename(place / "away")
    if is_linked:
        run.symlink_to(planted)
    else:
        planted.rename(run)
    slurm("scontrol", "release", job)
    assert wait_for_job(job)["ExitCode"] == "77:0"
    assert not (place / "PWNED").exists()
    assert "trained" not in "".join(path.read_text() for path in place.rglob("*.out"))


def test_an_environment_s_archive_of_another_user_is_not_unpacked(place, slurm_env):
    """Finding: the Python of an archive that was planted under the right name ran as the owner of the job."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    environment = read_environment(JobSpec(job_name="x", venv=str(place / "venv"), stage_env="TMPDIR"))
    archives = place / "jobs" / f".environments-{os.getuid()}"
    archives.mkdir(parents=True)
    (archives / f"{environment.key}.tar").write_bytes(b"planted")
    plant(archives)
    command = ("submit", "--ntasks-per-node=1", "--venv=venv", "--stage-env=TMPDIR", "train.py")
    slurmddp(*command, cwd=place, environ=slurm_env, status=2)
    os.chown(archives, 0, 0)
    archives.chmod(0o777)
    slurmddp(*command, cwd=place, environ=slurm_env, status=2)
    assert (archives / f"{environment.key}.tar").read_bytes() == b"planted"


def test_a_folder_that_every_user_may_write_to_gets_no_run_and_nothing_is_submitted(place, slurm_env, slurm):
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    slurmddp("submit", "--runs-dir=open", "--name=strange", "train.py", cwd=place, environ=slurm_env, status=2)
    assert not list((place / "open").iterdir())
    assert not slurm("squeue", "--noheader", "--name=strange").strip()
    (place / "open").chmod(0o1777)
    slurmddp(
        "submit",
        "--ntasks-per-node=1",
        "--runs-dir=open",
        "--name=own",
        "--wait",
        "train.py",
        cwd=place,
        environ=slurm_env,
    )
    assert (place / "open" / "own").stat().st_mode & 0o777 == 0o700
