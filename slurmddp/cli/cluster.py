"""`slurmddp cluster`: what there is, as a distributed training sees it."""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import click
import msgspec

from slurmddp.cluster import Cluster, Nodes, Partition
from slurmddp.cluster.inspect import look
from slurmddp.text import WIDTH, duration, printable, table, wrapped

_HEAD: Final = ("PARTITION", "NODES", "IDLE", "MIX", "DOWN", "CPUS", "MEM", "TIME", "PREEMPTION", "GPUS")
_NUMBERS: Final = frozenset(range(1, 8))
_LONG_NAME: Final = 12
"""A longer name has a line to itself."""
_MOST_ROWS: Final = 8
"""A partition with more kinds of nodes is one row with ranges."""

_MODES: Final = {
    "requeue": "requeue, it goes back into the queue",
    "cancel": "cancel, it ends",
    "suspend": "suspend, it is stopped until the other has ended",
    "gang": "gang, jobs take turns",
}

_LEAVING: Final = frozenset({"requeue", "cancel"})


@click.command()
@click.option("--all", "-a", "show_all", is_flag=True, help="Hidden partitions too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def cluster(*, show_all: bool, as_json: bool) -> None:
    """Show the partitions: nodes, CPUs, memory and GPUs of a node, limits, preemption.

    A row for each kind of GPU. DOWN counts nodes that get no jobs, for whatever reason. Below: further limits, who may
    use a partition, your accounts and QOS.
    """
    found = look(os.environ, accounts=True)
    click.echo(json.dumps(msgspec.to_builtins(found)) if as_json else "\n".join(report(found, show_all=show_all)))


def report(found: Cluster, *, show_all: bool = False) -> Iterator[str]:
    """Yield the lines for people, none longer than 80 columns unless a name is."""
    shown = [partition for partition in found.partitions if show_all or not partition.hidden]
    yield from (f"{printable(found.name)}, Slurm {printable(found.version)}", "")
    yield from _lines([row for partition in shown for row in _rows(partition)])
    notes = [*_notes(shown), *_about_preemption(found, shown), *_about_user(found), *_unknown(found)]
    if hidden := len(found.partitions) - len(shown):
        notes.append(f"{_count(hidden, 'hidden partition')} left out; --all shows all")
    yield from ("", *(line for note in notes for line in wrapped(note, below="  "))) if notes else ()


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the table; a long name, and GPUs that do not fit, stand on lines of their own."""
    short = [("" if len(row[0]) > _LONG_NAME else row[0], *row[1:-1]) for row in rows]
    lines = table([_HEAD[:-1], *short], right=_NUMBERS)
    width = max(map(len, lines))
    for line, row in zip(lines, [_HEAD, *rows], strict=True):
        if len(row[0]) > _LONG_NAME:
            yield row[0]
        full = f"{line.ljust(width)}  {row[-1]}"
        if len(full) <= WIDTH:
            yield full
        else:
            yield from (line, row[-1].rjust(WIDTH))


def _rows(partition: Partition) -> Iterator[tuple[str, ...]]:
    kinds = [list(group) for _, group in groupby(sorted(partition.nodes, key=_kind), key=_kind)]
    for groups in kinds if len(kinds) <= _MOST_ROWS else [list(partition.nodes)]:
        yield _row(partition, groups)
    if not kinds:
        yield _row(partition, [])


def _kind(nodes: Nodes) -> tuple[int, tuple[tuple[str, int], ...]]:
    return -nodes.gpus, nodes.gpu_counts


def _row(partition: Partition, groups: Sequence[Nodes]) -> tuple[str, ...]:
    counts = (
        sum(group.count for group in groups),
        *(sum(group.count for group in groups if group.state == state) for state in ("idle", "mixed")),
        sum(group.count for group in groups if not group.usable),
    )
    return (
        printable(partition.name) + "*" * partition.default,
        *map(str, counts),
        _range([group.cpus for group in groups]),
        _memory([group.memory_mb for group in groups]),
        "none" if partition.max_time_s is None else duration(partition.max_time_s),
        _preemption(partition),
        _gpus(groups),
    )


def _range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "-"
    least, most = min(numbers), max(numbers)
    return f"{least}-{most}" if least < most else str(most)


def _memory(megabytes: Sequence[int]) -> str:
    if max(megabytes, default=0) >= 1024:  # noqa: PLR2004 megabytes in a gigabyte
        return f"{_range([number // 1024 for number in megabytes])}G"
    return f"{_range(megabytes)}M" if megabytes else "-"


def _preemption(partition: Partition) -> str:
    """GraceTime is for jobs that have to leave (slurm.conf(5))."""
    leaves = partition.preemption in _LEAVING and partition.grace_s > 0
    return partition.preemption + leaves * f" {duration(partition.grace_s)}"


def _gpus(groups: Sequence[Nodes]) -> str:
    """Return them as one types them after --gpus-per-node."""
    if len({group.gpu_counts for group in groups}) > 1:
        return _range([group.gpus for group in groups])
    if not groups:
        return "-"
    counts = groups[0].gpu_counts
    return ",".join(f"{printable(kind)}:{count}" if kind else str(count) for kind, count in counts) or "0"


def _notes(partitions: Sequence[Partition]) -> Iterator[str]:
    for partition in partitions:
        if limits := [*_limits(partition), *_doors(partition)]:
            yield f"{printable(partition.name)}: {'; '.join(limits)}"


def _limits(partition: Partition) -> Iterator[str]:
    if partition.state != "UP":
        yield f"it is {printable(partition.state)}"
    if partition.max_nodes is not None:
        yield f"at most {_count(partition.max_nodes, 'node')} a job"
    if partition.min_nodes > 1:
        yield f"at least {_count(partition.min_nodes, 'node')} a job"
    if partition.whole_nodes:
        yield "a job gets whole nodes"
    if partition.max_cpus_per_node is not None:
        yield f"at most {_count(partition.max_cpus_per_node, 'CPU')} a node"
    if partition.max_memory_per_node_mb is not None:
        yield f"at most {_memory([partition.max_memory_per_node_mb])} of memory a node"
    if partition.default_time_s is not None:
        yield f"{duration(partition.default_time_s)} for jobs that name no time"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _doors(partition: Partition) -> Iterator[str]:
    allowed = (("groups", partition.groups), ("accounts", partition.accounts), ("QOS", partition.qos))
    denied = (("accounts", partition.denied_accounts), ("QOS", partition.denied_qos))
    yield from (f"only {what} {_names(names)}" for what, names in allowed if names is not None)
    yield from (f"not {what} {_names(names)}" for what, names in denied if names)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names))


def _about_preemption(found: Cluster, partitions: Sequence[Partition]) -> Iterator[str]:
    modes = {partition.preemption for partition in partitions}
    known = [text for mode, text in _MODES.items() if mode in modes]
    if not known:
        return
    rival = "one of a better QOS" if found.preempts_by_qos else "a more urgent one"
    yield f"PREEMPTION is what happens to a job when {rival} wants its nodes: {'; '.join(known)}."
    for qos in found.preemptable_qos:
        grace = f" after {duration(qos.grace_s)}" if qos.grace_s else ""
        yield f"QOS {printable(qos.name)}, wanted by {_names(qos.preempted_by)}: {qos.preemption}{grace}"
    if modes & _LEAVING:
        notice = "the signal of --signal-lead"
        signal = notice if found.signals_on_preemption else f"SIGTERM (not {notice})"
        graced = any(partition.grace_s for partition in partitions)
        time = f"the time shown, or {found.kill_wait_s} s," if graced else f"{found.kill_wait_s} s"
        yield f"First it gets {signal}, and has {time} to save its state."


def _about_user(found: Cluster) -> Iterator[str]:
    if found.accounts is not None:
        names = (f"{name} (default)" if name == found.default_account else name for name in found.accounts)
        yield f"Your accounts: {_names(tuple(names)) or 'none'}"
    if found.qos is not None:
        yield f"Your QOS: {_names(found.qos) or 'none'}"


def _unknown(found: Cluster) -> Iterator[str]:
    for partition in found.partitions:
        if partition.unseen:
            name = printable(partition.name)
            yield f"Not known: the {partition.unseen} nodes of {name}; this site does not show them to you"
    yield from (f"Not known: {printable(line)}" for line in found.unlearned)
