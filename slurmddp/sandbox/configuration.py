"""The plan of a sandbox, and the text of its configuration files. Reads their templates; starts nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from slurmddp.errors import UsageError

_SLURM_CONF: Final = Path(__file__).with_name("slurm.conf.in")
_PARTITIONS: Final = Path(__file__).with_name("partitions.conf.in")
_SLURMDBD_CONF: Final = Path(__file__).with_name("slurmdbd.conf.in")

SUBNET: Final = "10.77.0"
"""Private to the network namespace of each sandbox, so that all sandboxes use the same."""
HEAD: Final = "login"
HEAD_ADDRESS: Final = f"{SUBNET}.254"

_NEW_YEAR_2026_S: Final = 1767225600
_S_FOR_A_JOB: Final = 10
_JOB_IDS: Final = 60_000_000
"""Slurm counts from the first job id to its MaxJobId, 67043328, and then begins again with the first."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_CONF_LINE = re.compile(r"[A-Za-z]+=[^\n]*")
_PARTITION_NAME: Final = re.compile(r"(?!default$)[A-Za-z0-9][\w.-]{0,63}", re.ASCII | re.IGNORECASE)
_OWN: Final = re.compile(r"[a-z]+=.*", re.DOTALL)
_OPTION: Final = re.compile(r"[A-Z][A-Za-z]+=[\w.:/+,*()\[\]-]+", re.ASCII)
"""An option of a partition in slurm.conf(5)."""
_GPUS: Final = re.compile(r"(?:([\w.-]+):)?([0-9]{1,4})", re.ASCII)
_RANGES: Final = {"nodes": (0, 200), "cpus": (1, 4096), "memory": (1, 2**31), "gpus": (0, 128)}
"""The keys that are not Slurm's, with the least and the greatest value."""
_FORM: Final = "use NAME:nodes=1,cpus=40,gpus=a100:8,memory=16000,MaxTime=1:00:00, each part may be left out"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with its own nodes, which are all alike."""

    name: str
    nodes: int = 1
    cpus: int = 16
    memory: int = 16000
    """MB a node."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Each type of GPU of a node (empty for no type), and the number of GPUs."""
    options: tuple[tuple[str, str], ...] = ()
    """Other options of the partition, as slurm.conf(5) names them."""

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Read `NAME:nodes=2,cpus=40,gpus=a100:8,memory=64000,MaxTime=1:00:00`; raise UsageError for anything else.

        A key that begins with a capital is an option of slurm.conf(5) for the partition. A GPU's type may be left out;
        several types are written as `a100:4+h100:4`.
        """
        name, _, rest = text.partition(":")
        items = re.split(r",(?=\w+=)", rest) if rest else []
        own = {key: value for key, _, value in (item.partition("=") for item in items if _OWN.fullmatch(item))}
        options = {key: value for key, _, value in (item.partition("=") for item in items if _OPTION.fullmatch(item))}
        if not _PARTITION_NAME.fullmatch(name) or len(own) + len(options) != len(items) or own.keys() - _RANGES:
            raise UsageError(f"--partition {text!a}: {_FORM}")
        gpus = _gpus(own.pop("gpus", "0"), text)
        numbers = {key: _whole(key, value, text) for key, value in own.items()}
        return cls(name=name, gpus=gpus, options=tuple(options.items()), **numbers)


def _gpus(value: str, text: str) -> tuple[tuple[str, int], ...]:
    matches = [_GPUS.fullmatch(item) for item in value.split("+")]
    found = tuple((match[1] or "", int(match[2])) for match in matches if match)
    if len(found) < len(matches):
        raise UsageError(f"--partition {text!a}: gpus={value!a} is not a count, as in 8, a100:8 or a100:4+h100:4")
    _whole("gpus", str(sum(count for _, count in found)), text)
    return tuple((kind, count) for kind, count in found if count)


def _whole(key: str, value: str, text: str) -> int:
    least, most = _RANGES[key]
    if not re.fullmatch("[0-9]{1,10}", value) or not least <= int(value) <= most:
        raise UsageError(f"--partition {text!a}: {key}={value!a}: allowed are {least} to {most}")
    return int(value)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One sandbox: its nodes, and what each of them has according to Slurm."""

    name: str = "default"
    nodes: int = 2
    cpus_per_node: int = 16
    gpus_per_node: int = 8
    memory_per_node: int = 16000
    """MB."""
    accounting: bool = False
    """Whether slurmdbd and a database run, so that sacct answers."""
    kill_wait_s: int = 5
    """Seconds from SIGTERM to SIGKILL; Slurm's default is 30."""
    slurmd_timeout_s: int = 10
    """Seconds without an answer after which a node is DOWN; many sites use 60, Slurm's default is 300."""
    partitions: tuple[Shape, ...] = ()
    """Partitions in addition to the six that all `nodes` are in; with `nodes` 0 there are only these."""
    slurm_conf: tuple[str, ...] = ()
    """Lines of slurm.conf(5), `Key=value`; each replaces the sandbox's own lines of that key, `Key=` removes them."""
    etc: tuple[str, ...] = ()
    """Absolute paths of files that are copied into the folder of slurm.conf, for example a topology.conf."""

    def __post_init__(self) -> None:
        """Raise UsageError for a plan that Slurm cannot run."""
        check_name(self.name)
        _check_range("--nodes", self.nodes, 0 if self.partitions else 1, 200, also=", or 0 with --partition")
        _check_range("--nodes and those of all --partition together", len(self.node_names), 1, 200)
        _check_range("--cpus-per-node", self.cpus_per_node, 1, 4096)
        _check_range("--gpus-per-node", self.gpus_per_node, 0, 128)
        _check_range("--memory-per-node", self.memory_per_node, 1, 2**31)
        _check_range("--kill-wait", self.kill_wait_s, 1, 65533)
        _check_range("--slurmd-timeout", self.slurmd_timeout_s, 1, 65533)
        for line in self.slurm_conf:
            if not _CONF_LINE.fullmatch(line):
                raise UsageError(f"--slurm-conf {line!a}: not a line of slurm.conf, as in SelectType=select/linear")
        common = re.findall(r"PartitionName=(\w+)", _PARTITIONS.read_text()) if self.nodes else []
        names = [*common, *(shape.name for shape in self.partitions)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"--partition {twice[0]}: there is already a partition of that name; choose another")

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All nodes in their order, grouped by equal hardware."""
        gpus = (("", self.gpus_per_node),) if self.gpus_per_node else ()
        common = Shape(name="", nodes=self.nodes, cpus=self.cpus_per_node, memory=self.memory_per_node, gpus=gpus)
        return (common, *self.partitions)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes' host names, in their order."""
        return tuple(f"n{number + 1}" for number in range(sum(shape.nodes for shape in self.shapes)))

    @property
    def most_gpus(self) -> int:
        """The largest number of GPUs on one node."""
        return max(sum(count for _, count in shape.gpus) for shape in self.shapes if shape.nodes)

    @property
    def cluster(self) -> str:
        """The cluster's name in Slurm."""
        return f"sandbox-{self.name}"

    def address(self, node: str) -> str:
        """Return a node's IP address; raise UsageError when there is no such node."""
        if node not in self.node_names:
            raise UsageError(f"no node '{node}' in this sandbox; its nodes are {' '.join(self.node_names)}")
        return f"{SUBNET}.{node.removeprefix('n')}"


def check_name(name: str) -> None:
    """Raise UsageError for a name that a sandbox cannot have."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!a}: use up to 32 characters of a-z, 0-9 and '-'; the first must not be '-'")


def _check_range(option: str, given: int, least: int, most: int, *, also: str = "") -> None:
    if not least <= given <= most:
        raise UsageError(f"{option} {given}: allowed are {least} to {most}{also * (least > 0)}")


def first_job_id(time_s: float) -> int:
    """Return the first job id of a sandbox that was started at `time_s`, in seconds since 1970.

    It grows by one in ten seconds, so that a later sandbox does not use the job ids of an earlier one.
    """
    return int(time_s - _NEW_YEAR_2026_S) // _S_FOR_A_JOB % _JOB_IDS + 1


def slurm_conf(plan: Plan, folder: Path, first_job_id: int) -> str:
    """Return slurm.conf for a sandbox whose files are in `folder`."""
    sections = [
        _SLURM_CONF.read_text().format(cluster=plan.cluster, head=HEAD, address=HEAD_ADDRESS, folder=folder, plan=plan),
        f"FirstJobId={first_job_id}\n",
        "GresTypes=gpu\n" if plan.most_gpus else "",
        *(_node_line(shape, numbers) for shape, numbers in _number_shapes(plan)),
        *_partition_lines(plan),
    ]
    replaced = {line.partition("=")[0].lower() for line in plan.slurm_conf}
    kept = [line for line in "".join(sections).splitlines() if line.partition("=")[0].lower() not in replaced]
    kept = [line for line in kept if plan.accounting or not line.startswith("Accounting")]
    return "\n".join([*kept, *(line for line in plan.slurm_conf if line.partition("=")[2])]) + "\n"


def _number_shapes(plan: Plan) -> Iterator[tuple[Shape, str]]:
    """Yield each shape that has nodes, and the numbers of its nodes in Slurm's form."""
    first = 1
    for shape in plan.shapes:
        last = first + shape.nodes - 1
        if shape.nodes:
            yield shape, _span(first, last)
        first = last + 1


def _span(first: int, last: int) -> str:
    return f"[{first}-{last}]" if last > first else str(first)


def _node_line(shape: Shape, numbers: str) -> str:
    gpus = ",".join(":".join(filter(None, ("gpu", kind, str(count)))) for kind, count in shape.gpus)
    gres = f"Gres={gpus} " if gpus else ""
    names = f"NodeName=n{numbers} NodeAddr={SUBNET}.{numbers}"
    return f"{names} CPUs={shape.cpus} RealMemory={shape.memory} {gres}State=UNKNOWN\n"


def _partition_lines(plan: Plan) -> Iterator[str]:
    numbers = {shape.name: numbers for shape, numbers in _number_shapes(plan)}
    if plan.nodes:
        yield _PARTITIONS.read_text().format(nodes=f"n{numbers['']}")
    for shape in plan.partitions:
        first = {"Default": "YES"} if not plan.nodes and shape is plan.partitions[0] else {}
        nodes = {"Nodes": f"n{numbers[shape.name]}"} if shape.nodes else {}
        options = {**first, "State": "UP", **_PARTITION_DEFAULTS, **dict(shape.options), **nodes}
        yield f"PartitionName={shape.name} {' '.join(f'{key}={value}' for key, value in options.items())}\n"


def gres_conf(plan: Plan, folder: Path) -> str:
    """Return gres.conf, in which files stand for the devices of the GPUs."""
    lines = []
    for shape, numbers in _number_shapes(plan):
        first = 0
        for kind, count in shape.gpus:
            typed = f"Type={kind} " if kind else ""
            files = f"{folder}/dev/nvidia{_span(first, first + count - 1)}"
            lines.append(f"NodeName=n{numbers} Name=gpu {typed}File={files}\n")
            first += count
    return "".join(lines)


def cgroup_conf(version: tuple[int, int]) -> str:
    """Return cgroup.conf for a version of Slurm, as (24, 11).

    From 24.05 on, slurmd reads the machine's cgroups although nothing here uses them, and ends where it may not. 22.05
    ends because of the line that switches this off.
    """
    return "CgroupPlugin=disabled\n" if version >= (24, 5) else ""


def slurmdbd_conf(plan: Plan, folder: Path, user: str) -> str:
    """Return slurmdbd.conf for the sandbox's database; `user` is the name of uid 0 inside."""
    database = plan.cluster.replace("-", "_")
    return _SLURMDBD_CONF.read_text().format(head=HEAD, folder=folder, user=user, database=database)


def hosts(plan: Plan, host_file: str) -> str:
    """Return the hosts file inside the sandbox: the nodes, then the lines of the machine's file.

    The IPv4-mapped IPv6 address of a node has a name, too: torch looks up the name of the peer of an IPv6 socket, and
    no name server knows it. It is another name, because `hostname --ip-address` prints all addresses of a name.
    """
    addresses = {HEAD: HEAD_ADDRESS, **{node: plan.address(node) for node in plan.node_names}}
    named = [f"{address} {name}" for name, address in addresses.items()]
    mapped = [f"::ffff:{address} {name}.mapped" for name, address in addresses.items()]
    return "\n".join([*named, *mapped, host_file])


def passwd(user: str, entry: str, host_file: str) -> str:
    """Return a passwd file in which uid 0 has the name of the user who started the sandbox.

    `entry` is that user's line after the two numbers: full name, home, shell.
    """
    others = [line for line in host_file.splitlines() if not line.startswith(f"{user}:")]
    return "\n".join([f"{user}:x:0:0:{entry}", *others]) + "\n"


_PARTITION_DEFAULTS = {"MaxTime": "INFINITE", "PriorityTier": "10", "PreemptMode": "OFF"}
"""Options of a partition unless others are given."""
