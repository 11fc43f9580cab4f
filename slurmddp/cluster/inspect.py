"""What the cluster says of itself: the questions, how their answers are read, and one look at all. No files.

Formats that Slurm 20.11 to 25.x share; a field that is missing or not understood sets no limit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from slurmddp.cluster import preemption
from slurmddp.cluster.partitions import Cluster, Nodes, Partition, Qos
from slurmddp.errors import ClusterError, UsageError
from slurmddp.slurm import client, environment, values
from slurmddp.slurm.background import at_once
from slurmddp.slurm.hostlist import expand
from slurmddp.slurm.time import parse_duration
from slurmddp.slurm.values import Record, names, number, word

TIMEOUT_S: Final = 30.0

_SEPARATOR: Final = "\x1f"
"""Of ASCII's own, between fields; no value holds it."""
_COLUMNS: Final = _SEPARATOR.join(("%R", "%D", "%T", "%c", "%m", "%G", "%f", "%N"))

_SETTING: Final = r"(?m)^(\w+) *= ?(.*)$"
_EFFECTIVE: Final = r" CPUEfctv=(\d+)"
_CORES_KEPT: Final = r" CoreSpecCount=(\d+)"
_GRES: Final = r"(?:[^,(]|\([^)]*\))+"


class Membership(NamedTuple):
    """What the accounting lets a user charge and name."""

    default_account: str
    accounts: tuple[str, ...]
    qos: tuple[str, ...]


def look(environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S, accounts: bool = False) -> Cluster:
    """Return what the cluster says of itself; with `accounts` also what this user may charge.

    Raises ClusterError when Slurm is not there or does not answer within `timeout_s` seconds. An accounting that does
    not answer is named in `unlearned`.
    """
    questions = (nodes_command(), partitions_command(), config_command(), cpus_command())
    nodes, partitions, config, cpus = at_once(
        lambda words: client.query(words, environ, timeout_s=timeout_s), questions
    )
    settings = parse_config(config)
    cluster = describe(lessened(parse_nodes(nodes), parse_cpus(cpus)), parse_partitions(partitions), settings)
    return _with_accounts(cluster, settings, environ, timeout_s) if accounts else cluster


def _with_accounts(cluster: Cluster, config: Record, environ: Mapping[str, str], timeout_s: float) -> Cluster:
    if word(config.get("AccountingStorageType", "")).rpartition("/")[2] in ("", "none"):
        return _without(cluster, "this cluster keeps none")
    try:
        user = client.query(membership_command(environment.user(), cluster.name), environ, timeout_s=timeout_s)
        listed = _names_accounts(cluster)
        above = client.query(lineage_command(cluster.name), environ, timeout_s=timeout_s) if listed else ""
        qos = client.query(qos_command(), environ, timeout_s=timeout_s) if cluster.preempts_by_qos else ""
    except ClusterError as error:
        return _without(cluster, str(error))
    found, preemptable = parse_membership(user), parse_qos(qos, config)
    return replace(
        cluster,
        accounts=found.accounts,
        qos=found.qos,
        default_account=found.default_account,
        accounts_above=parse_lineage(above, found.accounts) if listed else (),
        preemptable_qos=preemptable,
    )


def _names_accounts(cluster: Cluster) -> bool:
    return any(partition.accounts or partition.denied_accounts for partition in cluster.partitions)


def _without(cluster: Cluster, why: str) -> Cluster:
    return replace(cluster, unlearned=(*cluster.unlearned, f"accounts and QOS: {why}"))


def nodes_command() -> list[str]:
    """Return the command that lists each partition's nodes, those that are alike and in one state together."""
    return ["sinfo", "--all", "--exact", "--noheader", f"--format={_COLUMNS}"]


def parse_nodes(stdout: str) -> dict[str, tuple[Nodes, ...]]:
    """Read the nodes of each partition; one without nodes has none."""
    found: dict[str, list[Nodes]] = {}
    known: dict[str, Nodes] = {}
    for line in stdout.split("\n"):
        if line.count(_SEPARATOR) != _COLUMNS.count(_SEPARATOR):
            continue
        partition, _, rest = line.partition(_SEPARATOR)
        group = known.get(rest) or known.setdefault(rest, _nodes(rest))
        if group.count:
            found.setdefault(partition.strip(), []).append(group)
    return {partition: tuple(groups) for partition, groups in found.items()}


def _nodes(fields: str) -> Nodes:
    count, state, cpus, memory, gres, features, hosts = map(str.strip, fields.split(_SEPARATOR))
    gpus = parse_gpus(gres)
    return Nodes(
        names=hosts,
        count=number(count) or 0,
        state=_state(state),
        cpus=number(cpus) or 0,
        memory_mb=number(memory) or 0,
        gpus=sum(gpus.values()),
        gpu_type=next(iter(gpus)) if len(gpus) == 1 else "",
        gpu_counts=tuple(gpus.items()),
        features=names(features) or (),
    )


def _state(text: str) -> str:
    """`mixed-`, `down*` and `IDLE+CLOUD` are states with marks; one that does not respond gets no jobs (sinfo(1))."""
    base, *marks = re.split(r"[^a-z_]", text.lower())
    if "drain" in marks:
        return "drained"
    return "no_respond" if text.endswith("*") and base in ("idle", "mixed", "allocated") else base


def parse_gpus(gres: str) -> dict[str, int]:
    """Return how many GPUs of each type a list of generic resources has: `gpu:a100:8(S:0-1)`, `gpu:2` of no type."""
    found: dict[str, int] = {}
    for item in re.findall(_GRES, gres):
        name, *rest = (part for part in item.partition("(")[0].split(":") if part != "no_consume")
        count = number(rest[-1]) if rest else None
        kind = rest[0] if len(rest) > (count is not None) else ""
        if name == "gpu" and count != 0:
            found[kind] = found.get(kind, 0) + (1 if count is None else count)
    return found


def cpus_command() -> list[str]:
    """Return the command that shows each node, with the CPUs that it keeps for itself, which sinfo does not tell."""
    return ["scontrol", "--all", "--oneliner", "show", "nodes"]


def parse_cpus(stdout: str) -> dict[str, int]:
    """Return the CPUs that jobs can have, of the nodes that keep some for themselves (CoreSpecCount, CpuSpecList)."""
    found: dict[str, int] = {}
    for line in stdout.split("\n"):
        effective, kept = re.search(_EFFECTIVE, line), re.search(_CORES_KEPT, line)
        if not (kept or effective):
            continue
        total = _count(line, "CPUTot")
        left = int(effective[1]) if effective else total - int(kept[1] if kept else 0) * _count(line, "ThreadsPerCore")
        if 0 < left < total:
            found[line.partition(" ")[0].removeprefix("NodeName=")] = left
    return found


def _count(line: str, key: str) -> int:
    match = re.search(rf" {key}=(\d+)", line)
    return int(match[1]) if match else 1


def lessened(nodes: Mapping[str, tuple[Nodes, ...]], cpus: Mapping[str, int]) -> Mapping[str, tuple[Nodes, ...]]:
    """Return the nodes with the CPUs that jobs can have; the least of those that sinfo lists together."""
    if not cpus:
        return nodes
    return {
        partition: tuple(replace(group, cpus=_least_cpus(group, cpus)) for group in groups)
        for partition, groups in nodes.items()
    }


def _least_cpus(group: Nodes, cpus: Mapping[str, int]) -> int:
    try:
        hosts = expand(group.names)
    except UsageError:
        return group.cpus
    return min((cpus.get(host, group.cpus) for host in hosts), default=group.cpus)


def partitions_command() -> list[str]:
    """Return the command that shows all partitions, hidden ones too."""
    return ["scontrol", "--all", "--oneliner", "show", "partition"]


def parse_partitions(stdout: str) -> list[Record]:
    """Read lines of `scontrol --oneliner show partition`."""
    return [values.record(line) for line in stdout.split("\n") if line.startswith("PartitionName=")]


def config_command() -> list[str]:
    """Return the command that shows the controller's configuration."""
    return ["scontrol", "show", "config"]


def parse_config(stdout: str) -> Record:
    """Read lines of `Key = value`; where a key comes twice, as in the parts of plugins, the first one holds."""
    return dict(reversed(re.findall(_SETTING, stdout)))


def describe(nodes: Mapping[str, tuple[Nodes, ...]], partitions: Sequence[Record], config: Record) -> Cluster:
    """Return the cluster that three answers describe."""
    ranks = preemption.Ranks(partitions)
    return Cluster(
        name=word(config.get("ClusterName", "")),
        version=word(config.get("SLURM_VERSION", "")),
        partitions=tuple(_partition(record, nodes, config, ranks) for record in partitions),
        requeue=config.get("JobRequeue", "1").strip() != "0",
        preempts_by_qos=preemption.kind(config) == "qos",
        chooses_partitions=word(config.get("JobSubmitPlugins", "")) != "",
        memory_is_counted="MEMORY" in config.get("SelectTypeParameters", "").upper(),
        signals_on_preemption=preemption.sends_user_signal(config),
        kill_wait_s=number(config.get("KillWait", "").partition(" ")[0]) or 30,
        max_array_size=number(config.get("MaxArraySize", "")) or 1001,
        max_script_bytes=_max_script_bytes(config),
    )


def _partition(
    record: Record, nodes: Mapping[str, tuple[Nodes, ...]], config: Record, ranks: preemption.Ranks
) -> Partition:
    name = record["PartitionName"]
    return Partition(
        name=name,
        default=record.get("Default") == "YES",
        hidden=record.get("Hidden") == "YES",
        state=record.get("State", "UP"),
        nodes=nodes.get(name, ()),
        unseen=0 if name in nodes else number(record.get("TotalNodes", "")) or 0,
        max_time_s=parse_duration(record.get("MaxTime", "")),
        default_time_s=parse_duration(record.get("DefaultTime", "")),
        max_nodes=number(record.get("MaxNodes", "")),
        min_nodes=number(record.get("MinNodes", "")) or 0,
        whole_nodes=_gives_whole_nodes(record, config),
        max_cpus_per_node=number(record.get("MaxCPUsPerNode", "")),
        max_memory_per_node_mb=number(record.get("MaxMemPerNode", "")) or number(config.get("MaxMemPerNode", "")),
        default_memory=_default_memory(record) or _default_memory(config),
        accounts=names(record.get("AllowAccounts", "ALL")),
        denied_accounts=names(record.get("DenyAccounts", "")) or (),
        qos=names(record.get("AllowQos", "ALL")),
        denied_qos=names(record.get("DenyQos", "")) or (),
        groups=names(record.get("AllowGroups", "ALL")),
        preemption=preemption.effect(record, config, outranked=ranks.outranked(record)),
        grace_s=0 if preemption.kind(config) == "qos" else number(record.get("GraceTime", "")) or 0,
    )


def _gives_whole_nodes(record: Record, config: Record) -> bool:
    shared = record.get("OverSubscribe", record.get("Shared", ""))
    return shared == "EXCLUSIVE" or config.get("SelectType", "").strip() == "select/linear"


def _default_memory(record: Record) -> str:
    """Return the first default there is (slurm.conf(5): they exclude one another)."""
    known = {**record, **dict(item.partition("=")[::2] for item in record.get("JobDefaults", "").split(","))}
    keys = ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode")
    return next((f"{key}={known[key]}" for key in keys if number(known.get(key, ""))), "")


def membership_command(user: str, cluster: str) -> list[str]:
    """Return the command that lists what the accounting lets a user charge."""
    where = ["show", "user", f"name={user}", f"cluster={cluster}", "withassoc"]
    return ["sacctmgr", "--noheader", "--parsable2", *where, "format=DefaultAccount,Account,QOS"]


def parse_membership(stdout: str) -> Membership:
    """Read lines of `default account|account|QOS,QOS`."""
    rows = [line.split("|") for line in stdout.split("\n") if line.count("|") == 2]  # noqa: PLR2004 three columns
    accounts = dict.fromkeys(account for _, account, _ in rows if account)
    qos = dict.fromkeys(name for *_, listed in rows for name in listed.split(",") if name)
    return Membership(next((default for default, *_ in rows if default), ""), tuple(accounts), tuple(qos))


def lineage_command(cluster: str) -> list[str]:
    """Return the command that lists each account with the one above it."""
    where = ["show", "assoc", f"cluster={cluster}", "user="]
    return ["sacctmgr", "--noheader", "--parsable2", *where, "format=Account,ParentName"]


def parse_lineage(stdout: str, accounts: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read lines of `account|account above`; return for each of `accounts` those above it, the nearest first."""
    rows = [line.split("|") for line in stdout.split("\n") if "|" in line]
    above = {account: parent for account, parent, *_ in rows if parent}
    return tuple((account, tuple(_upwards(account, above))) for account in accounts)


def _upwards(account: str, above: Mapping[str, str]) -> Iterator[str]:
    seen = {account}
    while (account := above.get(account, "")) and account not in seen:
        seen.add(account)
        yield account


def qos_command() -> list[str]:
    """Return the command that lists each QOS with those that it preempts, and how its own jobs are preempted."""
    return ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,Preempt,PreemptMode,GraceTime"]


def parse_qos(stdout: str, config: Record) -> tuple[Qos, ...]:
    """Read lines of `name|QOS,QOS|mode|time`, and return those that some other preempts."""
    rows = [line.split("|") for line in stdout.split("\n") if line.count("|") == 3]  # noqa: PLR2004 four columns
    rivals = {name: tuple(rival for rival, targets, *_ in rows if name in targets.split(",")) for name, *_ in rows}
    return tuple(
        Qos(
            name=name,
            preempted_by=rivals[name],
            preemption=preemption.mode(own) or preemption.mode(config.get("PreemptMode", "")) or "off",
            grace_s=parse_duration(grace) or 0,
        )
        for name, _, own, grace in rows
        if rivals[name]
    )


def _max_script_bytes(config: Record) -> int:
    match = re.search(r"\bmax_script_size=(\d+)", config.get("SchedulerParameters", ""))
    return int(match[1]) if match else Cluster().max_script_bytes
