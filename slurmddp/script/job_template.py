"""Builds a first job file: values that fit the cluster, with comments. Writes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
import tomli_w

from slurmddp.cluster.defaults import fill_open_values
from slurmddp.cluster.partitions import Cluster, Partition
from slurmddp.config.command import as_name, parse
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.slurm.values import slurm_time
from slurmddp.text import escape_text, list_some

DEFAULT: Final = "job.toml"
_TEMPLATE: Final = Path(__file__).with_name("job.toml.j2")

_SCRIPTS: Final = ("train.py", "main.py")
_TIME_S: Final = 4 * 3600
"""The time limit; the partition's limit where that is lower."""
_WIDTH: Final = 33
"""The column of the comments."""
_NAMED: Final = 6
"""Other partitions that are named in a comment."""

Names = tuple[str, ...] | None
_Value = tuple[str, str | int, str]
"""The name of a field, behind `# ` where the line is a comment; its value, and a remark."""


def find_script(folder: Path) -> str | None:
    """Return the training script of a folder, train.py or main.py; else None."""
    return next((name for name in _SCRIPTS if (folder / name).is_file()), None)


def choose_name(file: Path, script: str | None) -> str:
    """Return the job's name: that of the file unless it is job.toml, else that of the script or the worker's task."""
    if file.stem != Path(DEFAULT).stem:
        return as_name(file.stem)
    return parse((script,)).name if script else "mnist"


def build_job_file(
    cluster: Cluster | None, *, script: str | None, name: str, file: str, given: Mapping[str, Any] = {}
) -> str:
    """Return the text of a job file for a script or the bundled worker; without a cluster it has general values.

    The values in `given`, by the names of the fields, stand in place of the cluster's.
    """
    # with GPUs if the default one has none; those whose jobs can be preempted come last
    fit = [one for one in cluster.partitions if _is_open(one, cluster)] if cluster else []
    with_gpus = [one for one in fit if any(nodes.gpus for nodes in one.usable)]
    partition = min(with_gpus or fit, key=_rank, default=None)
    if cluster and given.get("partition"):
        partition = next(cluster.partitions_of(given["partition"]), None)
    fitting = _for_partition(cluster, partition) if cluster and partition else ()
    lines = {name.removeprefix("# "): _line(name, value, remark) for name, value, remark in fitting}
    lines |= {key: _line(key, value) for key, value in given.items()}
    where = f" for cluster {escape_text(cluster.name)} (Slurm {escape_text(cluster.version)})" if cluster else ""
    is_default = name == as_name(Path(file).stem)
    template = jinja2.Template(_TEMPLATE.read_text("utf-8"), trim_blocks=True, keep_trailing_newline=True)
    return str(
        template.render(
            where=where,
            file=file,
            name="# " * is_default + _line("name", name, f"of the job, and of its folder: jobs/{name}"),
            values=lines.values(),
            script=_toml(script) if script else "",
        )
    )


def _is_open(partition: Partition, cluster: Cluster) -> bool:
    return (
        partition.state == "UP"
        and bool(partition.usable)
        and not partition.hidden
        and partition.name.isprintable()
        and () not in _own(cluster, partition)
    )


def _rank(partition: Partition) -> tuple[bool, bool, bool, int]:
    count = sum(nodes.count for nodes in partition.usable)
    return partition.groups is not None, not partition.default, partition.preemption != "off", -count


def _own(cluster: Cluster, partition: Partition) -> tuple[Names, Names]:
    """Return which of the user's accounts and QOS the partition accepts; None for those that are unknown."""
    return (
        _allowed(partition.accounts, partition.denied_accounts, cluster.accounts),
        _allowed(partition.qos, partition.denied_qos, cluster.qos),
    )


def _allowed(only: Names, denied: tuple[str, ...], mine: Names) -> Names:
    return tuple(name for name in mine if name not in denied and (only is None or name in only)) if mine else None


def _for_partition(cluster: Cluster, partition: Partition) -> Iterator[_Value]:
    """Yield the values that fit the partition."""
    others = [other.name for other in cluster.partitions if other != partition and not other.hidden]
    yield "partition", partition.name, "the default" if partition.default else f"others: {list_some(others, _NAMED)}"
    own_accounts, own_qos = _own(cluster, partition)
    accounts = sorted(own_accounts or (), key=lambda name: name != cluster.default_account)
    known = len(accounts) == 1 or cluster.default_account in accounts
    yield from _choice("account", accounts, needed=known or partition.accounts is not None)
    yield from _choice("qos", own_qos or (), needed=partition.qos is not None)
    yield "nodes", max(1, partition.min_nodes), f"of {partition.node_count}"
    nodes = max(partition.usable, key=lambda nodes: (nodes.gpus > 0, nodes.count))
    is_typed = nodes.gpu_type and len({other.gpu_type for other in partition.usable if other.gpus}) > 1
    gpus = f"{nodes.gpu_type}:{nodes.gpus}" if is_typed else nodes.gpus
    if gpus:
        spec = JobSpec(job_name="x", partition=partition.name, gpus_per_node=str(gpus))
        yield "gpus_per_node", gpus, "all of a node, a rank on each"
    else:
        spec = JobSpec(job_name="x", partition=partition.name, ntasks_per_node=min(2, nodes.cpus))
        yield "ntasks_per_node", spec.tasks_per_node, "ranks on each node, which has no GPUs"
    full = fill_open_values(Resolved(spec, {}), cluster)
    for name in ("cpus_per_task", "mem"):  # what a job gets that leaves them open
        if name in full.origins:
            yield f"# {name}", getattr(full.spec, name), f"when left out; {full.origins[name]}"
    limit_s = partition.max_time_s or _TIME_S
    most = f"at most {slurm_time(limit_s)}" if partition.max_time_s else "the partition has no limit"
    yield "time", slurm_time(min(_TIME_S, limit_s)), most


def _choice(key: str, names: Sequence[str], *, needed: bool) -> Iterator[_Value]:
    """Yield the first name, or only a comment with all names where Slurm's default is enough."""
    every = f"one of {', '.join(names)}" if len(names) > 1 else ""
    if names and needed:
        yield key, names[0], every
    elif every:
        yield f"# {key}", "...", f"{every}; without it, your default"


def _line(name: str, value: str | int, remark: str = "") -> str:
    text = f"{name.replace('_', '-')} = {_toml(value)}"
    return f"{text:{_WIDTH - 1}} # {escape_text(remark)}" if remark else text


def _toml(value: str | int) -> str:
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
