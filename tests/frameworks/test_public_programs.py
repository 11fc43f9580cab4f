"""Public programs: each is compared with torchrun, and stopped in three ways. Run by `make frameworks`.

Git fetches them from GitHub, and where that is a mirror, git's own setting `url.<base>.insteadOf` says so.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from framework_job import Job, kill_rank
from polling import until
from public_programs import PROGRAMS, Program, check_out, result, steps

pytestmark = [pytest.mark.programs, pytest.mark.timeout(900)]
_TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a function that gives a folder of its own for one run of a program."""
    first: dict[str, Path] = {}

    def copy(program: Program, place: Path) -> Path:
        if program.name not in first:
            folder = tmp_path_factory.mktemp("sources")
            check_out(program, folder)
            first[program.name] = folder
        shutil.copytree(first[program.name], place, symlinks=True)
        return place / program.folder

    return copy


@pytest.fixture
def begin(submit, sources, tmp_path, monkeypatch):
    """Return a function that submits a program's job on two nodes."""

    def begin(program: Program) -> Job:
        monkeypatch.chdir(sources(program, tmp_path / "sources"))
        command = [*program.options, *program.command.split()]
        job = submit("job", "srun", *command, ranks=program.ranks, folder=Path.cwd())
        until(lambda: max(steps(program, job.output()), default=-1) >= program.stop_after, 240, otherwise=job.story)
        return job

    return begin


by_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@by_program
def test_it_computes_what_torchrun_computes(program, begin, sources, wait_for_job, tmp_path):
    place = sources(program, tmp_path / "calm")
    command = [*_TORCHRUN, f"--nproc-per-node={program.ranks}", *program.command.split()]
    calm = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert calm.returncode == 0, calm.stdout[-3000:]
    job = begin(program)
    assert wait_for_job(job.job_id, timeout_s=300)["JobState"] == "COMPLETED", job.story()
    assert result(program, _output(job, "last")) == result(program, calm.stdout)  # of rank 0: some print on each node


@by_program
@pytest.mark.parametrize("how", ["preempted", "killed", "time limit"])
def test_it_goes_on(program, how, begin, wait_for_job, sandbox, slurm, record_property):
    """The last attempt does not begin at the first step, if the program saves; it ends the training."""
    job = begin(program)
    if how == "preempted":
        sandbox.preempt(job.job_id)
    elif how == "killed":
        kill_rank(job)
    else:
        slurm("scancel", "--signal=USR2", job.job_id)
    ended = wait_for_job(job.job_id, timeout_s=300)
    assert ended["JobState"] == "COMPLETED", job.story()
    first, last = (steps(program, _output(job, attempt)) for attempt in ("first", "last"))
    record_property("row", f"had printed {first[-1]}, continued at {last[0]}")
    if program.saves:
        assert first[0] < last[0] <= first[-1] + 1, job.story()
    else:
        assert last[0] == first[0] and "starts anew" in job.story(), job.story()
    result(program, job.output())


def _output(job: Job, which: str) -> str:
    """Return what rank 0 printed in the first or the last attempt."""
    found = sorted(job.run.logs.glob("*/*/0.out"))
    return found[0 if which == "first" else -1].read_text(errors="replace")
