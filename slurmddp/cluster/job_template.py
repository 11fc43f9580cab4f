"""Builds a first job file: values that fit the cluster, with comments. Reads scripts; writes nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import tomli_w

from slurmddp.cluster import Cluster, Nodes, Partition
from slurmddp.cluster.defaults import fill_open_values
from slurmddp.config import command
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.slurm.time import slurm_time
from slurmddp.text import quote_value

DEFAULT: Final = "job.toml"

_SCRIPTS: Final = ("train.py", "main.py")
_MAIN: Final = re.compile(rb"""^if\s+__name__\s*==\s*["']__main__["']""", re.MULTILINE)
_SIZE_B: Final = 1_000_000
"""Larger files are not read."""
_TIME_S: Final = 4 * 3600
"""The time limit; the partition's limit where that is lower."""
_WIDTH: Final = 33
"""The column of the comments."""


def find_script(folder: Path) -> str | None:
    """Return the training script of a folder: train.py, main.py, or the only file that is a program; else None."""
    for name in _SCRIPTS:
        if (folder / name).is_file():
            return name
    programs = [path.name for path in folder.glob("*.py") if _is_name(path.name) and _is_program(path)]
    return programs[0] if len(programs) == 1 else None


def _is_name(name: str) -> bool:
    """Return whether a file can be the first word of a command and is not setup.py."""
    return name.isprintable() and not name.startswith("-") and name != "setup.py"


def _is_program(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= _SIZE_B and _MAIN.search(path.read_bytes()) is not None
    except OSError:
        return False


def choose_name(file: Path, script: str | None) -> str:
    """Return the job's name: that of the file unless it is job.toml, else that of the script or the worker's task."""
    if file.stem != Path(DEFAULT).stem:
        return command.as_name(file.stem)
    return command.name_of((script,)) if script else "mnist"


def build_job_file(cluster: Cluster | None, *, script: str | None, name: str, file: str) -> str:
    """Return the text of a job file for a script or the bundled worker; without a cluster it has general values."""
    partition = choose_partition(cluster) if cluster else None
    lines = [
        *_head(cluster, file),
        _line("name", name, f"of the job, and of its folder: jobs/{name}"),
        "",
        *(_for_partition(cluster, partition) if cluster and partition else _GENERAL),
        "",
        *_SETUP,
        "",
        *(_command(script) if script else _WORKER),
    ]
    return "\n".join(lines) + "\n"


def choose_partition(cluster: Cluster) -> Partition | None:
    """Return the default partition, or one with GPUs when the default one has none.

    Partitions whose jobs can be preempted come last. None when no partition accepts jobs.
    """
    fit = [partition for partition in cluster.partitions if _is_open(partition, cluster)]
    with_gpus = [partition for partition in fit if any(nodes.gpus for nodes in partition.usable)]
    return min(with_gpus or fit, key=_rank, default=None)


def _is_open(partition: Partition, cluster: Cluster) -> bool:
    return (
        partition.state == "UP"
        and bool(partition.usable)
        and not partition.hidden
        and partition.name.isprintable()
        and _allowed(partition.accounts, partition.denied_accounts, cluster.accounts) != ()
        and _allowed(partition.qos, partition.denied_qos, cluster.qos) != ()
    )


def _rank(partition: Partition) -> tuple[bool, bool, bool, int]:
    count = sum(nodes.count for nodes in partition.usable)
    return partition.groups is not None, not partition.default, partition.preemption != "off", -count


def _allowed(
    only: tuple[str, ...] | None, denied: tuple[str, ...], mine: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return which of `mine` the partition accepts; None when `mine` is unknown."""
    if not mine:
        return None
    return tuple(name for name in mine if name not in denied and (only is None or name in only))


def _head(cluster: Cluster | None, file: str) -> Iterator[str]:
    where = f" for cluster {_plain(cluster.name)} (Slurm {_plain(cluster.version)})" if cluster else ""
    yield f"# A job{where}. Every option of `slurmddp submit` can stand here by its long name."
    yield f"#   slurmddp config {file}    every value, and where it came from"
    yield f"#   slurmddp render {file}    the script, as it would be submitted"
    yield f"#   slurmddp doctor {file}    what would make it fail, before it is queued"
    yield f"#   slurmddp submit {file}    into the queue; options behind it beat what is here"
    if cluster is None:
        yield "# No cluster answered when this was written: take the # away where a value is needed."
    yield ""


def _for_partition(cluster: Cluster, partition: Partition) -> Iterator[str]:
    shape = max(partition.usable, key=lambda nodes: (nodes.gpus > 0, nodes.count))
    yield _line("partition", partition.name, "the default" if partition.default else _others(cluster, partition))
    yield from _account(cluster, partition)
    yield _line("nodes", max(1, partition.min_nodes), f"of {partition.node_count}")
    yield from _ranks(cluster, partition, shape)
    limit_s = partition.max_time_s or _TIME_S
    yield _line(
        "time",
        slurm_time(min(_TIME_S, limit_s)),
        f"at most {slurm_time(limit_s)}" if partition.max_time_s else "there is no limit",
    )


def _others(cluster: Cluster, partition: Partition) -> str:
    names = [_plain(other.name) for other in cluster.partitions if other != partition and not other.hidden]
    return "others: " + ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")  # noqa: PLR2004 a line's worth


def _account(cluster: Cluster, partition: Partition) -> Iterator[str]:
    accounts = _allowed(partition.accounts, partition.denied_accounts, cluster.accounts) or ()
    accounts = tuple(sorted(accounts, key=lambda name: name != cluster.default_account))
    needed = len(accounts) == 1 or partition.accounts is not None or cluster.default_account in accounts
    qos = _allowed(partition.qos, partition.denied_qos, cluster.qos)
    yield from _choice("account", accounts, needed=needed)
    yield from _choice("qos", qos, needed=partition.qos is not None)


def _choice(key: str, names: tuple[str, ...] | None, *, needed: bool) -> Iterator[str]:
    """Yield a line with the first name, or only a comment with all names where Slurm's default is enough."""
    if not names:
        return
    every = ", ".join(map(_plain, names))
    if needed:
        yield _line(key, names[0], f"one of {every}" if len(names) > 1 else "")
    elif len(names) > 1:
        yield _remark(f'{key} = "..."', f"one of {every}; without it, your default")


def _ranks(cluster: Cluster, partition: Partition, nodes: Nodes) -> Iterator[str]:
    kinds = {other.gpu_type for other in partition.usable if other.gpus}
    gpus = f"{nodes.gpu_type}:{nodes.gpus}" if len(kinds) > 1 and nodes.gpu_type else str(nodes.gpus)
    if nodes.gpus:
        yield _line("gpus-per-node", gpus if ":" in gpus else nodes.gpus, "all of a node, a rank on each")
    else:
        yield _line("ntasks-per-node", min(2, nodes.cpus), "ranks on each node, which has no GPUs")
    ranks: dict[str, Any] = {"gpus_per_node": gpus} if nodes.gpus else {"ntasks_per_node": min(2, nodes.cpus)}
    spec = JobSpec(job_name="x", partition=partition.name, **ranks)
    full = fill_open_values(Resolved(spec, {}), cluster)
    for name in ("cpus_per_task", "mem"):
        if name in full.origins:
            value = _toml(getattr(full.spec, name))
            yield _remark(f"{name.replace('_', '-')} = {value}", f"when left out; {_plain(full.origins[name])}")


_GENERAL: Final = (
    '# partition = "gpu"              # `sinfo` lists them',
    '# account = "..."                # where the site wants one',
    "nodes = 1",
    '# gpus-per-node = 8              # a rank on each; or a type and a count: "a100:8"',
    "# cpus-per-task = 8              # for each rank",
    'time = "04:00:00"                # what the partition allows at most',
)
_SETUP: Final = (
    "# The ranks' environment; the first line that fails ends the job.",
    '# module = ["cuda/12.4"]',
    '# venv = ".venv"                 # or conda = "NAME"; else the Python that slurmddp runs in',
    '# setup = ["export NCCL_DEBUG=WARN"]',
    '# env = ["HF_TOKEN"]             # passed on from where you submit, and never written down',
)
_WORKER: Final = (
    "# No training script was found here (train.py, main.py, or one with a main): the bundled worker trains.",
    '# command = ["train.py", "--lr", "0.1"]',
    "[worker]",
    'task = "mnist"                   # or linear, cifar10, gpt; `slurmddp submit --help` has all options',
    'data = "digits"',
    "epochs = 10",
)


def _command(script: str) -> Iterator[str]:
    yield "# What each rank runs, as under torchrun; its own options are further words of the list."
    yield f"command = [{_toml(script)}]"


def _line(key: str, value: str | int, remark: str) -> str:
    text = f"{key} = {_toml(value)}"
    return f"{text:{_WIDTH - 1}} # {remark}" if remark else text


def _remark(text: str, remark: str = "") -> str:
    return f"{f'# {text}':{_WIDTH - 1}} # {remark}" if remark else f"# {text}"


def _toml(value: str | int) -> str:
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")


def _plain(name: str) -> str:
    """Return a name that is safe in a comment."""
    return name if name.isprintable() else quote_value(name)
