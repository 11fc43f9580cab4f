"""What the cluster says of itself: the questions, how their answers are read, and one look at all. No files.

Formats that Slurm 20.11 to 25.x share; a field that is missing or not understood sets no limit.
"""

import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, NamedTuple

from slurmddp import slurm
from slurmddp.cluster import Cluster, Nodes, Partition, Preemption
from slurmddp.errors import ClusterError, UsageError
from slurmddp.hostlist import expand
from slurmddp.spec import seconds

TIMEOUT_S: Final = 30.0

_SEPARATOR: Final = "\x1f"
"""Of ASCII's own, between fields; no value holds it."""
_COLUMNS: Final = _SEPARATOR.join(("%R", "%D", "%T", "%c", "%m", "%G", "%f", "%N"))
_FIELDS: Final = len(_COLUMNS.split(_SEPARATOR))

_KEY_VALUE: Final = re.compile(r"(?:^|(?<=\s))([A-Za-z]\w*)=(\S*)")
_SETTING: Final = re.compile(r"^(\w+) *= ?(.*)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)\+?", re.ASCII)
_TIME: Final = re.compile(r"(\d+-)?\d+(:\d+){0,2}", re.ASCII)
_GRES: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")
_NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "NONE", "None"})

Record = Mapping[str, str]
"""One line of `scontrol --oneliner show`, by key."""


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
    questions = (nodes_command(), partitions_command(), config_command())
    with ThreadPoolExecutor(len(questions)) as pool:
        nodes, partitions, config = pool.map(lambda words: slurm.told(words, environ, timeout_s=timeout_s), questions)
    cluster = describe(parse_nodes(nodes), parse_partitions(partitions), parse_config(config))
    return _with_accounts(cluster, environ, timeout_s) if accounts else cluster


def nodes_command() -> list[str]:
    """Return the command that lists each partition's nodes, those that are alike and in one state together."""
    return ["sinfo", "--all", "--exact", "--noheader", f"--format={_COLUMNS}"]


def parse_nodes(stdout: str) -> dict[str, tuple[Nodes, ...]]:
    """Read the nodes of each partition; one without nodes has none."""
    found: dict[str, list[Nodes]] = {}
    for line in stdout.split("\n"):
        fields = line.split(_SEPARATOR)
        if len(fields) == _FIELDS and (group := _nodes(fields)).count:
            found.setdefault(fields[0].strip(), []).append(group)
    return {partition: tuple(groups) for partition, groups in found.items()}


def _nodes(fields: Sequence[str]) -> Nodes:
    count, state, cpus, memory, gres, features, names = (field.strip() for field in fields[1:])
    gpus = parse_gpus(gres)
    return Nodes(
        names=names,
        count=_number(count) or 0,
        state=_state(state),
        cpus=_number(cpus) or 0,
        memory_mb=_number(memory) or 0,
        gpus=sum(gpus.values()),
        gpu_type=next(iter(gpus)) if len(gpus) == 1 else "",
        gpu_counts=tuple(gpus.items()),
        features=_names(features) or (),
    )


def _state(text: str) -> str:
    """`mixed-`, `down*` and `IDLE+CLOUD` are states with marks; one that does not respond gets no jobs (sinfo(1))."""
    word, *marks = re.split(r"[^a-z_]", text.lower())
    if "drain" in marks:
        return "drained"
    return "no_respond" if text.endswith("*") and word in ("idle", "mixed", "allocated") else word


def parse_gpus(gres: str) -> dict[str, int]:
    """Return how many GPUs of each type a list of generic resources has: `gpu:a100:8(S:0-1)`, `gpu:2` of no type."""
    found: dict[str, int] = {}
    for item in _GRES.findall(gres):
        name, *rest = (word for word in item.partition("(")[0].split(":") if word != "no_consume")
        number = _number(rest[-1]) if rest else None
        kind = rest[0] if len(rest) > (number is not None) else ""
        if name == "gpu" and number != 0:
            found[kind] = found.get(kind, 0) + (1 if number is None else number)
    return found


def partitions_command() -> list[str]:
    """Return the command that shows all partitions, hidden ones too."""
    return ["scontrol", "--all", "--oneliner", "show", "partition"]


def parse_partitions(stdout: str) -> list[Record]:
    """Read lines of `scontrol --oneliner show partition`."""
    return [dict(_KEY_VALUE.findall(line)) for line in stdout.split("\n") if line.startswith("PartitionName=")]


def config_command() -> list[str]:
    """Return the command that shows the controller's configuration."""
    return ["scontrol", "show", "config"]


def parse_config(stdout: str) -> Record:
    """Read lines of `Key = value`; where a key comes twice, as in the parts of plugins, the first one holds."""
    return dict(reversed(_SETTING.findall(stdout)))


def describe(nodes: Mapping[str, tuple[Nodes, ...]], partitions: Sequence[Record], config: Record) -> Cluster:
    """Return the cluster that three answers describe."""
    ranks = _Ranks(partitions)
    return Cluster(
        name=_text(config.get("ClusterName", "")),
        version=_text(config.get("SLURM_VERSION", "")),
        partitions=tuple(_partition(record, nodes, config, ranks) for record in partitions),
        requeue=config.get("JobRequeue", "1").strip() != "0",
        preempts_by_qos=_preempt_type(config) == "qos",
        memory_is_counted="MEMORY" in config.get("SelectTypeParameters", "").upper(),
        signals_on_preemption="send_user_signal" in config.get("PreemptParameters", ""),
        kill_wait_s=_number(config.get("KillWait", "").partition(" ")[0]) or 30,
        max_array_size=_number(config.get("MaxArraySize", "")) or 1001,
    )


def _partition(record: Record, nodes: Mapping[str, tuple[Nodes, ...]], config: Record, ranks: "_Ranks") -> Partition:
    name = record["PartitionName"]
    return Partition(
        name=name,
        default=record.get("Default") == "YES",
        hidden=record.get("Hidden") == "YES",
        state=record.get("State", "UP"),
        nodes=nodes.get(name, ()),
        max_time_s=_time_s(record.get("MaxTime", "")),
        default_time_s=_time_s(record.get("DefaultTime", "")),
        max_nodes=_number(record.get("MaxNodes", "")),
        min_nodes=_number(record.get("MinNodes", "")) or 0,
        max_cpus_per_node=_number(record.get("MaxCPUsPerNode", "")),
        max_memory_per_node_mb=_number(record.get("MaxMemPerNode", "")) or _number(config.get("MaxMemPerNode", "")),
        default_memory=_default_memory(record) or _default_memory(config),
        accounts=_names(record.get("AllowAccounts", "ALL")),
        denied_accounts=_names(record.get("DenyAccounts", "")) or (),
        qos=_names(record.get("AllowQos", "ALL")),
        denied_qos=_names(record.get("DenyQos", "")) or (),
        groups=_names(record.get("AllowGroups", "ALL")),
        preemption=_preemption(record, config, outranked=ranks.outrank(record)),
        grace_s=_number(record.get("GraceTime", "")) or 0,
    )


def _default_memory(record: Record) -> str:
    """Return the first default there is (slurm.conf(5): they exclude one another)."""
    known = {**record, **dict(item.partition("=")[::2] for item in record.get("JobDefaults", "").split(","))}
    keys = ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode")
    return next((f"{key}={known[key]}" for key in keys if _number(known.get(key, ""))), "")


def _preemption(record: Record, config: Record, *, outranked: bool) -> Preemption:
    """Return what happens to a preempted job: the partition's own mode before the cluster's, which scontrol merges."""
    kind, cluster_modes = _preempt_type(config), config.get("PreemptMode", "OFF").upper().split(",")
    modes = record.get("PreemptMode", "").upper().split(",") if record.get("PreemptMode") else cluster_modes
    if kind == "qos":
        modes = cluster_modes
    if kind == "qos" or (kind == "partition_prio" and outranked):
        ways: tuple[tuple[str, Preemption], ...] = (
            ("CANCEL", "cancel"),
            ("REQUEUE", "requeue"),
            ("SUSPEND", "suspend"),
        )
        for word, way in ways:
            if word in modes:
                return way
    shares = re.fullmatch(r"FORCE(?!:1$).*", record.get("OverSubscribe", record.get("Shared", "")))
    return "gang" if "GANG" in cluster_modes and shares else "off"


def _preempt_type(config: Record) -> str:
    return config.get("PreemptType", "").strip().rpartition("/")[2]


class _Ranks:
    """Which partitions' jobs can take the nodes of which others': a higher tier, and nodes in common."""

    def __init__(self, partitions: Sequence[Record]) -> None:
        self._partitions = partitions
        self._nodes: dict[str, frozenset[str] | None] = {}

    def outrank(self, record: Record) -> bool:
        """Tell whether some partition's jobs come before those of this one."""
        return any(_tier(other) > _tier(record) and self._share(other, record) for other in self._partitions)

    def _share(self, one: Record, other: Record) -> bool:
        left, right = self._expanded(one.get("Nodes", "")), self._expanded(other.get("Nodes", ""))
        return left is None or right is None or not left.isdisjoint(right)

    def _expanded(self, names: str) -> frozenset[str] | None:
        """Return the names; None where they cannot be read, which may be any."""
        if names not in self._nodes:
            try:
                self._nodes[names] = frozenset(() if names in _NOTHING else expand(names))
            except UsageError:
                self._nodes[names] = None
        return self._nodes[names]


def _tier(record: Record) -> int:
    return _number(record.get("PriorityTier", record.get("Priority", ""))) or 0


def membership_command(user: str, cluster: str) -> list[str]:
    """Return the command that lists what the accounting lets a user charge."""
    where = ["show", "user", f"name={user}", f"cluster={cluster}", "withassoc"]
    return ["sacctmgr", "--noheader", "--parsable2", *where, "format=DefaultAccount,Account,QOS"]


def parse_membership(stdout: str) -> Membership:
    """Read lines of `default account|account|QOS,QOS`."""
    rows = [line.split("|") for line in stdout.split("\n") if line.count("|") == 2]  # noqa: PLR2004 three columns
    accounts = dict.fromkeys(account for _, account, _ in rows if account)
    qos = dict.fromkeys(name for *_, names in rows for name in names.split(",") if name)
    return Membership(next((default for default, *_ in rows if default), ""), tuple(accounts), tuple(qos))


def _with_accounts(cluster: Cluster, environ: Mapping[str, str], timeout_s: float) -> Cluster:
    command = membership_command(_user(), cluster.name)
    try:
        found = parse_membership(slurm.told(command, environ, timeout_s=timeout_s))
    except ClusterError as error:
        return replace(cluster, unlearned=(*cluster.unlearned, f"accounts and QOS: {error}"))
    return replace(cluster, accounts=found.accounts, qos=found.qos, default_account=found.default_account)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _number(text: str) -> int | None:
    """Return a count; None for `UNLIMITED` and whatever is none. `4K` are 4096, `16000+` at least 16000 (sinfo(1))."""
    match = _NUMBER.fullmatch(text.strip())
    return int(float(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]) if match else None


def _time_s(text: str) -> int | None:
    return seconds(text) if _TIME.fullmatch(text) else None


def _names(text: str) -> tuple[str, ...] | None:
    """Return a list of names; None for `ALL` and for none."""
    return None if text == "ALL" or text in _NOTHING else _unique(text.split(","))


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in items if item))


def _text(value: str) -> str:
    return "" if value.strip() in _NOTHING else value.strip()
