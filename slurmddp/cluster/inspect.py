"""Queries the cluster for its partitions, nodes, configuration and accounts, and parses the answers. No files.

The formats are those of Slurm 20.11 to 25.x; a field that is missing or unknown sets no limit.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from msgspec.structs import replace

from slurmddp.cluster.partitions import Cluster, Nodes, Partition, Preemption
from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands, environment
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.values import NO_VALUE, Record, parse_duration, parse_names, parse_number, parse_record, parse_word

TIMEOUT_S: Final = 30.0

_SEPARATOR: Final = "\x1f"
"""ASCII's unit separator, between fields; it is in no value."""
_COLUMNS: Final = _SEPARATOR.join(("%R", "%D", "%T", "%c", "%m", "%G", "%f", "%N"))

_SETTING: Final = r"(?m)^(\w+) *= ?(.*)$"
_GRES: Final = r"(?:[^,(]|\([^)]*\))+"
_MODES: Final[Mapping[str, Preemption]] = {"CANCEL": "cancel", "REQUEUE": "requeue", "SUSPEND": "suspend"}
_FORCED_SHARING: Final = r"FORCE(?!:1$).*"
"""Values of OverSubscribe with which all jobs share nodes (slurm.conf(5))."""

_QUESTIONS: Final = b"show config\nshow partition\nshow nodes\n"
"""The controller's configuration; all partitions, also hidden ones; each node with its reserved CPUs, which sinfo does
not show. scontrol answers them in one process."""


def query_cluster(environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S, accounts: bool = False) -> Cluster:
    """Return the cluster; with `accounts` also the accounts and QOS of this user.

    Raises ClusterError when Slurm is missing or one of its programs does not answer within `timeout_s` seconds. When
    the accounting does not answer, `unlearned` says so.
    """
    groups = commands.list_nodes("--all", "--exact", columns=_COLUMNS)
    shown, nodes = client.query_both(commands.SHOW_BY_INPUT, _QUESTIONS, groups, environ, timeout_s=timeout_s)
    cluster = describe(parse_nodes(nodes, parse_node_records(shown)), shown)
    return _with_accounts(cluster, _parse_config(shown), environ, timeout_s) if accounts else cluster


def _with_accounts(cluster: Cluster, config: Record, environ: Mapping[str, str], timeout_s: float) -> Cluster:
    if parse_word(config.get("AccountingStorageType", "")).rpartition("/")[2] in ("", "none"):
        return replace(cluster, unlearned=("accounts and QOS: this cluster has no accounting",))
    where = ("user", f"name={environment.user()}", f"cluster={cluster.name}", "withassoc")
    membership = commands.list_accounts(*where, columns="DefaultAccount,Account,QOS")
    try:
        user = client.query(membership, environ, timeout_s=timeout_s)
    except ClusterError as error:
        return replace(cluster, unlearned=(f"accounts and QOS: {error}",))
    return replace(cluster, **parse_membership(user))


def parse_nodes(stdout: str, records: Mapping[str, Record]) -> dict[str, tuple[Nodes, ...]]:
    """Parse the nodes by partition, without partitions that have none; `records` are those of scontrol, by node."""
    found: dict[str, list[Nodes]] = {}
    known: dict[str, Nodes] = {}
    for line in stdout.split("\n"):
        if line.count(_SEPARATOR) != _COLUMNS.count(_SEPARATOR):
            continue
        partition, _, rest = line.partition(_SEPARATOR)
        group = known.get(rest) or known.setdefault(rest, _nodes(rest, records))
        if group.count:
            found.setdefault(partition.strip(), []).append(group)
    return {partition: tuple(groups) for partition, groups in found.items()}


def _nodes(fields: str, records: Mapping[str, Record]) -> Nodes:
    count, state, cpus, memory, gres, features, hosts = map(str.strip, fields.split(_SEPARATOR))
    gpus, most = parse_gpus(gres), parse_number(cpus) or 0
    names = try_expand(hosts) or ()
    known = [records[name] for name in names if name in records]
    used = [sum(parse_gpus(one["GresUsed"]).values()) for one in known if "GresUsed" in one]
    return Nodes(
        names=hosts,
        count=parse_number(count) or 0,
        state=_state(state),
        cpus=min([most, *filter(None, map(_cpus_for_jobs, known))]),
        memory_mb=parse_number(memory) or 0,
        gpus=sum(gpus.values()),
        gpu_type=next(iter(gpus)) if len(gpus) == 1 else "",
        gpu_counts=tuple(gpus.items()),
        free_gpus=sum(gpus.values()) * len(used) - sum(used) if used and len(used) == len(names) else None,
        features=parse_names(features) or (),
    )


def _state(text: str) -> str:
    """Return the state without marks as in `down*` and `IDLE+CLOUD`; `*` marks a node that does not respond."""
    base, *marks = re.split(r"[^a-z_]", text.lower())
    if "drain" in marks:
        return "drained"
    return "no_respond" if text.endswith("*") and base in ("idle", "mixed", "allocated") else base


def parse_gpus(gres: str) -> dict[str, int]:
    """Return the GPUs by type in a list of generic resources as `gpu:a100:8(S:0-1)`; `gpu:2` has no type."""
    found: dict[str, int] = {}
    for item in re.findall(_GRES, gres):
        name, *rest = (part for part in item.partition("(")[0].split(":") if part != "no_consume")
        count = parse_number(rest[-1]) if rest else None
        kind = rest[0] if len(rest) > (count is not None) else ""
        if name == "gpu" and count != 0:
            found[kind] = found.get(kind, 0) + (1 if count is None else count)
    return found


def parse_node_records(stdout: str) -> dict[str, Record]:
    """Parse what scontrol shows of each node, by its name."""
    records = (parse_record(line) for line in stdout.split("\n") if line.startswith("NodeName="))
    return {record["NodeName"]: record for record in records}


def _cpus_for_jobs(record: Record) -> int:
    """Return the CPUs of a node without reserved ones (CoreSpecCount, CpuSpecList); 0 if that is not known."""
    total, reserved = (parse_number(record.get(key, "")) or 0 for key in ("CPUTot", "CoreSpecCount"))
    unreserved = total - reserved * (parse_number(record.get("ThreadsPerCore", "")) or 1)
    return parse_number(record.get("CPUEfctv", "")) or max(0, unreserved)


def _parse_config(stdout: str) -> Record:
    """Parse lines of `Key = value`; the first one counts where a plugin repeats a key."""
    return dict(reversed(re.findall(_SETTING, stdout)))


def describe(nodes: Mapping[str, tuple[Nodes, ...]], shown: str) -> Cluster:
    """Return the cluster from its nodes, and what scontrol shows of its configuration and, a line each, partitions."""
    config = _parse_config(shown)
    partitions = [parse_record(line) for line in shown.split("\n") if line.startswith("PartitionName=")]
    return Cluster(
        name=parse_word(config.get("ClusterName", "")),
        version=parse_word(config.get("SLURM_VERSION", "")),
        partitions=tuple(_partition(record, nodes, config, partitions) for record in partitions),
        requeue=config.get("JobRequeue", "1").strip() != "0",
        expedites="enable_expedited_requeue" in config.get("SlurmctldParameters", ""),
        preempts_by_qos=_preemption_type(config) == "qos",
        chooses_partitions=parse_word(config.get("JobSubmitPlugins", "")) != "",
        memory_is_counted="MEMORY" in config.get("SelectTypeParameters", "").upper(),
        # up to 22.05 it is SlurmctldParameters=preempt_send_user_signal
        signals_on_preemption=any(
            "send_user_signal" in config.get(key, "") for key in ("PreemptParameters", "SlurmctldParameters")
        ),
        kill_wait_s=parse_number(config.get("KillWait", "").partition(" ")[0]) or 30,
        max_array_size=parse_number(config.get("MaxArraySize", "")) or 1001,
    )


def _partition(
    record: Record, nodes: Mapping[str, tuple[Nodes, ...]], config: Record, partitions: Sequence[Record]
) -> Partition:
    name, shared = record["PartitionName"], record.get("OverSubscribe", record.get("Shared", ""))
    exclusive = shared == "EXCLUSIVE" or record.get("Exclusive") == "NODE"  # 26.05 shows the same option so
    return Partition(
        name=name,
        default=record.get("Default") == "YES",
        hidden=record.get("Hidden") == "YES",
        state=record.get("State", "UP"),
        nodes=nodes.get(name, ()),
        unseen=0 if name in nodes else parse_number(record.get("TotalNodes", "")) or 0,
        max_time_s=parse_duration(record.get("MaxTime", "")),
        default_time_s=parse_duration(record.get("DefaultTime", "")),
        max_nodes=parse_number(record.get("MaxNodes", "")),
        min_nodes=parse_number(record.get("MinNodes", "")) or 0,
        whole_nodes=exclusive or config.get("SelectType", "").strip() == "select/linear",
        max_cpus_per_node=parse_number(record.get("MaxCPUsPerNode", "")),
        max_memory_per_node_mb=parse_number(record.get("MaxMemPerNode", ""))
        or parse_number(config.get("MaxMemPerNode", "")),
        default_memory=_default_memory(record) or _default_memory(config),
        accounts=parse_names(record.get("AllowAccounts", "ALL")),
        denied_accounts=parse_names(record.get("DenyAccounts", "")) or (),
        qos=parse_names(record.get("AllowQos", "ALL")),
        denied_qos=parse_names(record.get("DenyQos", "")) or (),
        groups=parse_names(record.get("AllowGroups", "ALL")),
        preemption=_find_preemption(record, config, partitions),
        grace_s=0 if _preemption_type(config) == "qos" else parse_number(record.get("GraceTime", "")) or 0,
    )


def _preemption_type(config: Record) -> str:
    """Return the plugin that decides which jobs are preempted: `partition_prio`, `qos`, or another."""
    return config.get("PreemptType", "").strip().rpartition("/")[2]


def _find_preemption(partition: Record, config: Record, partitions: Sequence[Record]) -> Preemption:
    """Return what happens to a preempted job: by QOS, or by a partition of a higher tier with nodes of this one.

    The partition's mode beats the cluster's. A QOS may also have a mode, which no partition shows.
    """
    kind, common = _preemption_type(config), config.get("PreemptMode", "OFF")
    nodes = _node_names(partition.get("Nodes", ""))
    above = (_node_names(one.get("Nodes", "")) for one in partitions if _tier(one) > _tier(partition))
    outranked = any(nodes is None or names is None or not nodes.isdisjoint(names) for names in above)
    if kind == "qos" or (kind == "partition_prio" and outranked):
        own = "" if kind == "qos" else partition.get("PreemptMode", "")
        modes = (own or common).upper().split(",")
        if way := next((way for word, way in _MODES.items() if word in modes), None):
            return way
    shared = partition.get("OverSubscribe", partition.get("Shared", ""))
    return "gang" if "GANG" in common.upper() and re.fullmatch(_FORCED_SHARING, shared) else "off"


@cache
def _node_names(nodes: str) -> frozenset[str] | None:
    """Return the names in a host list; None, which stands for any node, when it cannot be read."""
    names = () if nodes in NO_VALUE else try_expand(nodes)
    return None if names is None else frozenset(names)


def _tier(partition: Record) -> int:
    return parse_number(partition.get("PriorityTier", partition.get("Priority", ""))) or 0


def _default_memory(record: Record) -> str:
    """Return the default memory that is set; only one of them can be (slurm.conf(5))."""
    known = {**record, **dict(item.partition("=")[::2] for item in record.get("JobDefaults", "").split(","))}
    keys = ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode")
    return next((f"{key}={known[key]}" for key in keys if parse_number(known.get(key, ""))), "")


def parse_membership(stdout: str) -> dict[str, Any]:
    """Parse lines of `default account|account|QOS,QOS` into fields of Cluster."""
    rows = [line.split("|") for line in stdout.split("\n") if line.count("|") == 2]  # noqa: PLR2004 three columns
    accounts = dict.fromkeys(account for _, account, _ in rows if account)
    qos = dict.fromkeys(name for *_, listed in rows for name in listed.split(",") if name)
    default = next((default for default, *_ in rows if default), "")
    return {"default_account": default, "accounts": tuple(accounts), "qos": tuple(qos)}
