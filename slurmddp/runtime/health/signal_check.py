"""Checks that every rank receives the stop signal: Slurm sends the one that it sends before a time limit."""

import os
import signal
import threading
import time
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.store_channel import StoreChannel
from slurmddp.runtime.launch.rank import Rank
from slurmddp.slurm import client, commands

REACH_LIMIT_S: Final = 30.0
_ASK_LIMIT_S: Final = 10.0


def check_signals(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let Slurm send USR2 to the step; rank 0 returns the ranks that did not receive it.

    Replaces this process's handler of USR2.
    """
    received = threading.Event()

    signal.signal(signal.SIGUSR2, lambda *_: received.set())
    channel.share("signal handlers")
    began = time.monotonic()
    refusal = channel.broadcast("signal", _send(rank) if rank.is_main else None)
    arrived = not refusal and _await(received)
    answers = channel.gather("received", [rank.rank, rank.host, time.monotonic() - began if arrived else None])
    return _judge_signals(refusal, answers) if rank.is_main else []


def _await(received: threading.Event) -> bool:
    """Wait in short pieces: a signal that comes just before a wait does not end it, and Python handles it after it."""
    ends_at = time.monotonic() + REACH_LIMIT_S
    while not received.wait(0.1) and time.monotonic() < ends_at:
        pass
    return received.is_set()


def _send(rank: Rank) -> str:
    """Let Slurm send the signal; return why it could not, empty if it did."""
    if not rank.under_srun:
        return "the ranks were not started by srun"
    step = os.environ.get("SLURM_STEP_ID")
    job = os.environ.get("SLURM_JOB_ID", rank.job)
    command = commands.cancel(f"{job}.{step}" if step else job, signal="USR2")
    try:
        answer = client.ask(command, os.environ, timeout_s=_ASK_LIMIT_S)
    except ClusterError as error:
        return str(error).removesuffix(f"; {client.NO_CLUSTER}")
    return answer.stderr.strip() if answer.status else ""


def _judge_signals(refusal: str, answers: list[tuple[int, str, float | None]]) -> list[Finding]:
    if refusal:
        return [Finding(check="notice", level="note", what=f"the stop signal was not tried: {refusal}")]
    missing = [
        Finding(
            check="notice",
            level="warning",
            host=host,
            rank=number,
            what=f"did not receive the stop signal that Slurm sent within {REACH_LIMIT_S:.0f} s",
            why="it will not save before the time limit, nor when the job is preempted",
            advice="start the ranks by srun itself, without a program in between that keeps signals (use `exec`)",
        )
        for number, host, after_s in answers
        if after_s is None
    ]
    slowest_s = max((after_s for _, _, after_s in answers if after_s is not None), default=0.0)
    what = f"the stop signal reaches all ranks within {slowest_s:.2f} s"
    return missing or [Finding(check="notice", level="ok", what=what)]
