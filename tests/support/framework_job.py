"""Jobs of programs that were not written for slurmddp."""

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from polling import until

from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

PROGRAMS = Path(__file__).parents[1] / "frameworks"
EPOCHS, STEP_S = 10, 0.1
KEEPS = {"lightning_fit": "own", "fabric_loop": "fabric.pt"}
"""Each program, and where it keeps its own checkpoints."""
FINAL = re.compile(r"final loss (\S+)")
PLACE = re.compile(r"rank (\d+) of (\d+), local (\d+), (\w+)$", re.MULTILINE)
ON_TWO_NODES = {(str(rank), "2", "0", "cpu") for rank in range(2)}
ON_ONE_MACHINE = {(str(rank), "2", str(rank), "cpu") for rank in range(2)}


def words(program: str, folder: Path, step_s: float, *more: str) -> list[str]:
    order = [str(EPOCHS), str(folder / KEEPS[program])]
    return [str(PROGRAMS / f"{program}.py"), *order, str(step_s), *more]


@dataclass
class Job:
    """One job of a program on the sandbox, and the run's folder."""

    job_id: str
    run: RunDir

    def output(self) -> str:
        """What the ranks printed, of all attempts."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.run.logs.glob("*/*/*.out")))

    def attempts(self) -> list[Path]:
        """Return the folders of what the attempts' ranks printed, the newest last."""
        return sorted(self.run.logs.glob("*/*.*"), key=lambda path: path.stat().st_mtime)

    def until_said(self, text: str) -> None:
        until(lambda: text in self.output(), otherwise=self.story)

    def until_epochs(self, more: int) -> None:
        """Wait until so many more epochs are done than now: a start may have done some before this one is looked at."""
        last = self._epochs() + more
        until(lambda: self._epochs() >= last, otherwise=self.story)

    def _epochs(self) -> int:
        return max(map(int, re.findall(r"epoch (\d+) done", self.output())), default=0)

    def preempt(self, sandbox) -> None:
        """Preempt it; its steps take a second longer until that has begun: they must not run out before."""
        slow = self.run.path.parent.parent / "slow"
        slow.touch()
        sandbox.preempt(self.job_id)
        slow.unlink()

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def story(self) -> str:
        return self.run.batch_log(self.job_id).read_text(errors="replace") + self.output()


def final_loss(output: str) -> float:
    (loss,) = set(FINAL.findall(output))
    return float(loss)


def places(output: str) -> set[tuple[str, ...]]:
    """Rank, world size, local rank and device, as the programs' own libraries see them."""
    return set(PLACE.findall(output))


def kill_rank(job: Job, *, rank: int | None = None, also_others: bool = False) -> None:
    """End a rank that srun has started, or the last one of a job, or all, without a warning, if it has begun."""
    found = sorted(place for pid in Path("/proc").glob("[0-9]*") if (place := _rank_of(pid, job)) is not None)
    if rank is not None:
        found = [place for place in found if place[0] == rank][:1]  # behind it come the workers of its loader
    for *_, pid in found if also_others else found[-1:]:
        os.kill(pid, signal.SIGKILL)


def _rank_of(process: Path, job: Job) -> tuple[int, int, int] | None:
    """Return the rank, the start and the id of a process that is a rank of the job: srun's task, or forked from it.

    The ids begin again at the smallest one: a rank may have a smaller id than the process that has forked it.
    """
    with contextlib.suppress(OSError):
        names = (process / "environ").read_bytes().split(b"\0")
        words = (process / "cmdline").read_bytes()
        if (
            b"SLURMDDP_RUN_DIR=" + str(job.run.path).encode() in names
            and (b"-P" in words.split(b"\0") or b"/bootstrap.py\0" in words)
            and any(name.startswith(b"SLURM_STEP_ID=") for name in names)
        ):
            procid = next((name[13:] for name in names if name.startswith(b"SLURM_PROCID=")), b"-1")
            started = (process / "stat").read_text().rpartition(")")[2].split()[19]
            return int(procid), int(started), int(process.name)
    return None


def tell_time_limit(job, slurm, wait_for_job) -> None:
    job.until_said("epoch 3 done")
    slurm("scancel", "--signal=USR2", job.job_id)
    wait_for_job(job.job_id, "PENDING")
