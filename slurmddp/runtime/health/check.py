"""The checks of `slurmddp doctor --in-job` on all nodes of a job; each finding names host and rank.

python -m slurmddp.worker -m slurmddp.runtime.health.check
"""

import json
import os
import signal
import threading
import time
from dataclasses import asdict
from typing import Final

import torch.distributed as dist

from slurmddp.errors import ClusterError
from slurmddp.runs.files import write_whole
from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.bandwidth import measure
from slurmddp.runtime.health.facts import Facts, gather_facts
from slurmddp.runtime.health.network import StoreChannel, check_clocks, check_folder, check_ports, check_tracker
from slurmddp.runtime.health.rules import failed_check, judge
from slurmddp.runtime.launch.rank import Rank, read_rank
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.rendezvous.process_group import FORM_LIMIT, choose_device, leave_group
from slurmddp.slurm import client, commands

REACH_LIMIT_S: Final = 30.0
_ASK_LIMIT_S: Final = 10.0


def main() -> None:
    """Run all checks, the fast and certain ones first; rank 0 writes the findings."""
    process = this_process()
    rank = process.stopping.rank if process.has_begun else read_rank(os.environ)
    channel = StoreChannel(rank)
    found = _judge_facts(channel.gather("facts", gather_facts(rank, (), os.environ).to_text()))
    _write(rank, found)
    for check in (check_ports, check_folder, check_clocks, check_tracker, check_signals):
        found += check(rank, channel)
        _write(rank, found)
    closed = any(finding.level == "error" for finding in found if finding.check == "ports")
    if channel.broadcast("ports are closed", closed):  # then no group can form
        _write(rank, found, complete=True)
        return
    device = choose_device("auto", rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=channel.group_store, rank=rank.rank, world_size=rank.world_size, timeout=FORM_LIMIT
    )
    _write(rank, found + measure(rank, channel, device), complete=True)
    leave_group(dist.group.WORLD)


def _write(rank: Rank, findings: list[Finding], *, complete: bool = False) -> None:
    """Write the findings so far, as rank 0: the next check may not end. `complete` says that no check follows."""
    if rank.is_main and rank.run_dir:
        content = {"complete": complete, "findings": [asdict(finding) for finding in findings]}
        write_whole(rank.run_dir.findings, json.dumps(content).encode())


def _judge_facts(texts: list[str]) -> list[Finding]:
    """Return, on rank 0, what is wrong with the facts of all ranks, and a line for each check that found nothing."""
    try:
        facts = [Facts.from_text(text) for text in texts]
        findings = list(judge(facts))
    except Exception as error:  # noqa: BLE001 - the other checks must still run
        return [failed_check(f"{type(error).__name__}: {error}")]
    ranks = [each for each in facts if not each.failure]
    if not ranks:
        return findings
    wrong = {finding.check for finding in findings}
    gpus = ", ".join(dict.fromkeys(ranks[0].gpus))
    passed = {
        "versions": "alike on all ranks: " + ", ".join(f"{key} {value}" for key, value in ranks[0].versions.items()),
        "gpus": f"each rank has a GPU of its own: {gpus}" if gpus else "no rank sees a GPU",
        "affinity": f"CPUs that each rank may run on: {_span([len(each.cpus) for each in ranks])}",
        "shm": f"/dev/shm has {_span([each.shm_mb for each in ranks])} MB on each node",  # noqa: S108 - text only
    }
    return [*findings, *(Finding(check=key, level="ok", what=what) for key, what in passed.items() if key not in wrong)]


def _span(numbers: list[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def check_signals(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let Slurm send USR2 to the step; rank 0 returns the ranks that did not receive it.

    Replaces this process's handler of USR2.
    """
    received = threading.Event()
    signal.signal(signal.SIGUSR2, lambda *_: received.set())
    channel.share("signal handlers")
    began = time.monotonic()
    refusal = channel.broadcast("signal", _send(rank) if rank.is_main else None)
    # In short pieces: a signal that comes just before a wait does not end it, and Python handles it after it.
    while not (refusal or received.wait(0.1)) and time.monotonic() < began + REACH_LIMIT_S:
        pass
    arrived = received.is_set() and not refusal
    answers = channel.gather("received", [rank.rank, rank.host, time.monotonic() - began if arrived else None])
    return _judge_signals(refusal, answers) if rank.is_main else []


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


if __name__ == "__main__":
    main()
