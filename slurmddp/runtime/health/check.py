"""The checks of `slurmddp doctor --in-job` on all nodes of a job; each finding names host and rank.

python -m slurmddp.worker -m slurmddp.runtime.health.check
"""

import os

import torch.distributed as dist

from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.bandwidth import measure
from slurmddp.runtime.health.facts import Facts, gather_facts
from slurmddp.runtime.health.network import check_clocks, check_folder, check_ports, check_tracker
from slurmddp.runtime.health.rules import failed_check, judge
from slurmddp.runtime.health.signal_check import check_signals
from slurmddp.runtime.health.store_channel import Report, StoreChannel
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.rendezvous.process_group import FORM_LIMIT, choose_device, leave_group


def main() -> None:
    """Run all checks, the fast and certain ones first; rank 0 writes the findings."""
    process = this_process()
    rank = process.stopping.rank if process.has_begun else read_rank(os.environ)
    channel, report = StoreChannel(rank), Report(rank)
    report.add(_judge_facts(channel.gather("facts", gather_facts(rank, (), os.environ).to_text())))
    for check in (check_ports, check_folder, check_clocks, check_tracker, check_signals):
        report.add(check(rank, channel))
    if not channel.broadcast("ports are open", report.has_no_error("ports")):
        report.add((), complete=True)  # without open ports no group can form
        return
    device = choose_device("auto", rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=channel.group_store, rank=rank.rank, world_size=rank.world_size, timeout=FORM_LIMIT
    )
    report.add(measure(rank, channel, device), complete=True)
    leave_group(dist.group.WORLD)


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


if __name__ == "__main__":
    main()
