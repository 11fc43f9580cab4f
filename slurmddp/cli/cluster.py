"""`slurmddp cluster`: show the partitions of the cluster, with what matters for distributed training."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import click
import msgspec

from slurmddp.cli.screen import print_result, screen_width
from slurmddp.cluster.inspect import query_cluster
from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.text import count, escape_text, format_duration, format_table, wrap_text

_HEAD: Final = ("PARTITION", "NODES", "IDLE", "MIX", "ALLOC", "PLAN", "DOWN", "FREE", "CPUS", "MEM", "TIME", "GPUS")
_NUMBERS: Final = range(1, 11)
_MOST_ROWS: Final = 8
"""A partition with more kinds of nodes is shown as one row with ranges."""

_MODES: Final = {
    "requeue": "requeue, the job goes back into the queue",
    "cancel": "cancel, the job ends",
    "suspend": "suspend, the job is stopped until the other has ended",
    "gang": "gang, the jobs take turns",
}

_ENDS_JOB: Final = frozenset({"requeue", "cancel"})


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def cluster(*, as_json: bool) -> None:
    """Show the partitions: nodes, CPUs, memory and GPUs of a node, limits, preemption.

    There is a row for each kind of GPU. PLAN counts idle nodes that are kept for a job, DOWN those that get no jobs,
    also drained ones. GPUS are those of a node, FREE all that no job has now. Below the table: further limits, who may
    use a partition, your accounts and QOS.
    """
    found = query_cluster(os.environ, accounts=True)
    print_result(msgspec.to_builtins(found), format_cluster(found, screen_width()), as_json=as_json)


def format_cluster(found: Cluster, width: int = sys.maxsize) -> Iterator[str]:
    """Yield the table of the partitions in at most `width` columns, and notes of at most 80 columns."""
    yield from (f"{escape_text(found.name)}, Slurm {escape_text(found.version)}", "")
    rows = [row for partition in found.partitions for row in _partition_rows(partition)]
    yield from format_table(rows, head=_HEAD, right=_NUMBERS, width=width)
    if notes := [*_notes(found)]:
        yield from ("", *(line for note in notes for line in wrap_text(note, below="  ")))


def _partition_rows(partition: Partition) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of GPU; of very many kinds one with ranges."""
    kinds: dict[tuple[tuple[str, int], ...], list[Nodes]] = {}
    for nodes in sorted(partition.nodes, key=lambda nodes: (-nodes.gpus, nodes.gpu_counts)):
        kinds.setdefault(nodes.gpu_counts, []).append(nodes)
    for groups in kinds.values() if 1 <= len(kinds) <= _MOST_ROWS else [partition.nodes]:
        counts = Counter[str]()
        for group in groups:
            counts[group.state if group.usable else "down"] += group.count
        free = [group.free_gpus for group in groups if group.gpus and group.usable]
        yield (
            partition.name + "*" * partition.default,
            *(str(counts.total()), str(counts["idle"])),
            *(str(counts[state] or "") for state in ("mixed", "allocated", "planned", "down")),
            "" if None in free or not free else str(sum(filter(None, free))),
            _format_range([group.cpus for group in groups]),
            _format_memory([group.memory_mb for group in groups]),
            "none" if partition.max_time_s is None else format_duration(partition.max_time_s),
            _format_gpus(groups),
        )


def _format_range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "-"
    least, most = min(numbers), max(numbers)
    return f"{least}-{most}" if least < most else str(most)


def _format_memory(megabytes: Sequence[int]) -> str:
    if max(megabytes, default=0) >= 1024:  # noqa: PLR2004 megabytes in a gigabyte
        return f"{_format_range([number // 1024 for number in megabytes])}G"
    return f"{_format_range(megabytes)}M" if megabytes else "-"


def _format_gpus(groups: Sequence[Nodes]) -> str:
    """Return the GPUs of a node in the form of --gpus-per-node."""
    if len({group.gpu_counts for group in groups}) != 1:
        return _format_range([group.gpus for group in groups])
    return ",".join(f"{kind}:{count}" if kind else str(count) for kind, count in groups[0].gpu_counts) or "0"


def _notes(found: Cluster) -> Iterator[str]:
    for partition in found.partitions:
        if limits := [*_limits(partition)]:
            yield f"{escape_text(partition.name)}: {'; '.join(limits)}"
    yield from _preemption_notes(found)
    if found.accounts is not None:
        names = (f"{name} (default)" if name == found.default_account else name for name in found.accounts)
        yield f"Your accounts: {_join_names(tuple(names)) or 'none'}"
    if found.qos is not None:
        yield f"Your QOS: {_join_names(found.qos) or 'none'}"
    for one in found.partitions:
        if one.unseen:
            yield f"Not known: the {one.unseen} nodes of {escape_text(one.name)}, which this site does not show to you"
    yield from (f"Not known: {escape_text(line)}" for line in found.unlearned)


def _limits(partition: Partition) -> Iterator[str]:
    if partition.hidden:
        yield "hidden, sinfo shows it with --all"
    if partition.state != "UP":
        yield f"its state is {escape_text(partition.state)}"
    if partition.max_nodes is not None:
        yield f"at most {count(partition.max_nodes, 'node')} a job"
    if partition.min_nodes > 1:
        yield f"at least {count(partition.min_nodes, 'node')} a job"
    if partition.whole_nodes:
        yield "a job gets whole nodes"
    if partition.max_cpus_per_node is not None:
        yield f"at most {count(partition.max_cpus_per_node, 'CPU')} a node"
    if partition.max_memory_per_node_mb is not None:
        yield f"at most {_format_memory([partition.max_memory_per_node_mb])} of memory a node"
    if partition.default_time_s is not None:
        yield f"{format_duration(partition.default_time_s)} for jobs without --time"
    if partition.preemption != "off":
        has_grace = partition.preemption in _ENDS_JOB and partition.grace_s > 0  # GraceTime, slurm.conf(5)
        after = f", after {format_duration(partition.grace_s)}" * has_grace
        yield f"jobs are preempted ({partition.preemption}{after})"
    allowed = (("groups", partition.groups), ("accounts", partition.accounts), ("QOS", partition.qos))
    denied = (("accounts", partition.denied_accounts), ("QOS", partition.denied_qos))
    yield from (f"only for {what} {_join_names(names)}" for what, names in allowed if names is not None)
    yield from (f"not for {what} {_join_names(names)}" for what, names in denied if names)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(map(escape_text, names))


def _preemption_notes(found: Cluster) -> Iterator[str]:
    modes = {partition.preemption for partition in found.partitions}
    known = [text for mode, text in _MODES.items() if mode in modes]
    if not known:
        return
    preemptor = "job of a higher QOS" if found.preempts_by_qos else "job of a higher priority"
    yield f"Preemption is what happens to a job when a {preemptor} needs its nodes: {'; '.join(known)}."
    if found.preempts_by_qos:
        yield "`sacctmgr show qos format=Name,Preempt,PreemptMode,GraceTime` shows which QOS preempts which, and how."
    if modes & _ENDS_JOB:
        notice = "the signal of --signal-lead"
        signal = notice if found.signals_on_preemption else f"SIGTERM (not {notice})"
        graced = any(partition.grace_s for partition in found.partitions)
        time = f"the time shown, or {found.kill_wait_s} s," if graced else f"{found.kill_wait_s} s"
        yield f"First the job gets {signal}, and has {time} to save a checkpoint."
