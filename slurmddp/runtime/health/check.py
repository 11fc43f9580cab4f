"""The long look at the nodes of a job, the COMMAND of `slurmddp doctor --in-job`: each check names host and rank.

python -m slurmddp.worker -m slurmddp.runtime.health.check
"""

import os

import torch.distributed as dist

from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.bandwidth import measure
from slurmddp.runtime.health.facts import Facts, gather
from slurmddp.runtime.health.network import compare_clocks, try_folder, try_ports
from slurmddp.runtime.health.rules import failed, judge
from slurmddp.runtime.health.signal_check import try_notice
from slurmddp.runtime.health.store_channel import Report, Talk
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.rendezvous.process_group import FORM_LIMIT, choose_device, leave
from slurmddp.runtime.stopping import stop_policy


def main() -> None:
    """Look at everything that can be looked at, the cheap and certain first; rank 0 leaves the findings."""
    begun = stop_policy.begun()
    rank = begun.rank if begun else read_rank(os.environ)
    talk, report = Talk(rank), Report(rank)
    report.add(_of_facts(talk.gather("facts", gather(rank, (), os.environ).to_text())))
    for look in (try_ports, try_folder, compare_clocks, try_notice):
        report.add(look(rank, talk))
    if not talk.tell("all ways are open", report.has_no_error("ports")):
        report.add((), complete=True)  # no group forms where a way is closed
        return
    device = choose_device("auto", rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=talk.group_store, rank=rank.rank, world_size=rank.world_size, timeout=FORM_LIMIT
    )
    report.add(measure(rank, talk, device), complete=True)
    leave(dist.group.WORLD)


def _of_facts(texts: list[str]) -> list[Finding]:
    """Return what is wrong with the facts, on rank 0 with a line on those that are right."""
    try:
        return _judged(texts)
    except Exception as error:  # noqa: BLE001 - what is left to look at is worth more than this
        return [failed(f"{type(error).__name__}: {error}")]


def _judged(texts: list[str]) -> list[Finding]:
    if not texts:
        return []
    told = [Facts.from_text(text) for text in texts]
    findings = list(judge(told))
    ranks = [facts for facts in told if not facts.failure]
    if not ranks:
        return findings
    wrong = {finding.check for finding in findings}
    good = {
        "versions": "alike on all ranks: " + ", ".join(f"{key} {value}" for key, value in ranks[0].versions.items()),
        "gpus": f"each rank has a GPU of its own: {_gpus(ranks)}" if ranks[0].gpus else "no rank sees a GPU",
        "affinity": f"CPUs that each rank may run on: {_span([len(facts.cpus) for facts in ranks])}",
        "shm": f"/dev/shm has {_span([facts.shm_mb for facts in ranks])} MB on each node",  # noqa: S108 - text only
    }
    return [*findings, *(Finding(check=key, level="ok", what=what) for key, what in good.items() if key not in wrong)]


def _gpus(ranks: list[Facts]) -> str:
    return ", ".join(dict.fromkeys(gpu for facts in ranks[:1] for gpu in facts.gpus))


def _span(numbers: list[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


if __name__ == "__main__":
    main()
