"""Whether a notice reaches every rank: Slurm is asked to send the signal that it sends before a time limit."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.store_channel import Talk
from slurmddp.runtime.launch.rank import Rank
from slurmddp.slurm import client

REACH_LIMIT_S: Final = 10.0
_ASK_LIMIT_S: Final = 10.0


def try_notice(rank: Rank, talk: Talk) -> list[Finding]:
    """Let Slurm send USR2 to the step; rank 0 returns which ranks did not get it.

    From here on USR2 means nothing else to this process.
    """
    heard = threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        del number, frame
        heard.set()

    signal.signal(signal.SIGUSR2, hear)
    talk.meet("listens for notice")
    began = time.monotonic()
    refused = talk.tell("notice", _send(rank) if rank.is_main else None)
    arrived = not refused and heard.wait(REACH_LIMIT_S)
    said = talk.gather("noticed", [rank.rank, rank.host, time.monotonic() - began if arrived else None])
    return _of_notice(refused, said) if rank.is_main else []


def _send(rank: Rank) -> str:
    """Ask Slurm for it; return why that cannot be, empty when it did."""
    if not rank.under_srun:
        return "the ranks were not started by srun"
    step = os.environ.get("SLURM_STEP_ID")
    job = os.environ.get("SLURM_JOB_ID", rank.job)
    command = ["scancel", "--signal=USR2", f"{job}.{step}" if step else job]
    try:
        answer = client.ask(command, os.environ, timeout_s=_ASK_LIMIT_S)
    except ClusterError as error:
        return str(error).removesuffix(f"; {client.NO_CLUSTER}")
    return answer.stderr.strip() if answer.status else ""


def _of_notice(refused: str, said: list[tuple[int, str, float | None]]) -> list[Finding]:
    if refused:
        return [Finding(check="notice", level="note", what=f"the way of the notice was not tried: {refused}")]
    silent = [
        Finding(
            check="notice",
            level="warning",
            host=host,
            rank=number,
            what=f"did not get the signal that Slurm sent within {REACH_LIMIT_S:.0f} s",
            why="it will not save before the time limit, nor when the job is preempted",
            advice="start the ranks by srun itself, with nothing between that keeps signals (use `exec`)",
        )
        for number, host, after_s in said
        if after_s is None
    ]
    latest_s = max((after_s for _, _, after_s in said if after_s is not None), default=0.0)
    return silent or [Finding(check="notice", level="ok", what=f"a notice reaches all ranks within {latest_s:.2f} s")]
