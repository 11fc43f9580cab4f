"""What a sandbox is made of, and the text of its configuration files. No I/O, no processes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.sandbox.partition_shape import Shape

SUBNET: Final = "10.77.0"
"""Private to each sandbox's own network namespace, so that all sandboxes can use the same."""
HEAD: Final = "login"
HEAD_ADDRESS: Final = f"{SUBNET}.254"

_NEW_YEAR_2026_S: Final = 1767225600
_S_FOR_A_JOB: Final = 10
_JOB_IDS: Final = 60_000_000
"""Slurm counts on from the first to its MaxJobId, 67043328, and then from the first again."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One sandbox: how many nodes, and what each of them claims to have."""

    name: str = "default"
    nodes: int = 2
    cpus_per_node: int = 16
    gpus_per_node: int = 8
    memory_per_node: int = 16000
    """MB."""
    accounting: bool = False
    """Whether slurmdbd and a database run, so that sacct answers."""
    memory_limits: bool = False
    """Whether memory is given out like CPUs, and a step that takes more than its job has is killed (slurm.conf(5),
    OverMemoryKill): Slurm itself looks once a second, so that no cgroup of the machine's is needed."""
    kill_wait_s: int = 5
    """How long a job may live on after SIGTERM; Slurm's own default is 30."""
    slurmd_timeout_s: int = 10
    """How long a node may be silent before Slurm calls it down; sites often have 60, Slurm's own default is 300."""
    partitions: tuple[Shape, ...] = ()
    """Partitions besides the six that all `nodes` are in; without such nodes there are these alone."""

    def __post_init__(self) -> None:
        """Raise UsageError for a plan that Slurm could not carry out."""
        check_name(self.name)
        _check_range("--nodes", self.nodes, 0 if self.partitions else 1, 200)
        _check_range("--nodes and those of all --partition together", len(self.node_names), 1, 200)
        _check_range("--cpus-per-node", self.cpus_per_node, 1, 4096)
        _check_range("--gpus-per-node", self.gpus_per_node, 0, 128)
        _check_range("--memory-per-node", self.memory_per_node, 1, 2**31)
        _check_range("--kill-wait", self.kill_wait_s, 1, 65533)
        _check_range("--slurmd-timeout", self.slurmd_timeout_s, 1, 65533)
        names = [name for name, _ in _PARTITIONS if self.nodes] + [shape.name for shape in self.partitions]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"--partition {twice[0]}: there is one of that name already")

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All nodes in their order, those that are alike together."""
        gpus = (("", self.gpus_per_node),) if self.gpus_per_node else ()
        common = Shape(name="", nodes=self.nodes, cpus=self.cpus_per_node, memory=self.memory_per_node, gpus=gpus)
        return (common, *self.partitions)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes' host names, in their order."""
        return tuple(f"n{number + 1}" for number in range(sum(shape.nodes for shape in self.shapes)))

    @property
    def most_gpus(self) -> int:
        """The GPUs of the node that has most of them."""
        return max(shape.gpu_count for shape in self.shapes if shape.nodes)

    @property
    def cluster(self) -> str:
        """What Slurm calls the cluster."""
        return f"sandbox-{self.name}"

    def address(self, node: str) -> str:
        """Return a node's address; raise UsageError when there is no such node."""
        if node not in self.node_names:
            raise UsageError(f"no node '{node}' in this sandbox; its nodes are {' '.join(self.node_names)}")
        return f"{SUBNET}.{node.removeprefix('n')}"


def check_name(name: str) -> None:
    """Raise UsageError unless `name` can name a sandbox."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!a}: use up to 32 of a-z, 0-9 and '-', the first no '-'")


def _check_range(option: str, given: int, least: int, most: int) -> None:
    if not least <= given <= most:
        raise UsageError(f"{option} {given}: allowed are {least} to {most}")


def first_job_id(time_s: float) -> int:
    """Return the first job id of a sandbox made at `time_s`, in seconds since 1970: one for each ten seconds.

    So a later sandbox does not give a job the id that one of an earlier sandbox had.
    """
    return int(time_s - _NEW_YEAR_2026_S) // _S_FOR_A_JOB % _JOB_IDS + 1


def slurm_conf(plan: Plan, folder: Path, first_job_id: int) -> str:
    """Return slurm.conf for a sandbox whose files lie under `folder`."""
    sections = [
        _SLURM_CONF.format(cluster=plan.cluster, head=HEAD, address=HEAD_ADDRESS, folder=folder, plan=plan),
        f"FirstJobId={first_job_id}\n",
        _ACCOUNTING.format(address=HEAD_ADDRESS, folder=folder) if plan.accounting else "",
        _MEMORY_LIMITS if plan.memory_limits else "SelectTypeParameters=CR_Core\n",
        "GresTypes=gpu\n" if plan.most_gpus else "",
        *(_node_line(shape, numbers) for shape, numbers in _numbered(plan)),
        *_partition_lines(plan),
    ]
    return "".join(sections)


def _numbered(plan: Plan) -> Iterator[tuple[Shape, str]]:
    """Yield the nodes that are alike, and their numbers as Slurm writes them; none that has no nodes."""
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
    numbers = {shape.name: numbers for shape, numbers in _numbered(plan)}
    if plan.nodes:
        yield from (f"PartitionName={name} Nodes=n{numbers['']} State=UP {rest}\n" for name, rest in _PARTITIONS)
    for shape in plan.partitions:
        first = {"Default": "YES"} if not plan.nodes and shape is plan.partitions[0] else {}
        nodes = {"Nodes": f"n{numbers[shape.name]}"} if shape.nodes else {}
        options = {**first, "State": "UP", **_STEADY, **dict(shape.options), **nodes}
        yield f"PartitionName={shape.name} {' '.join(f'{key}={value}' for key, value in options.items())}\n"


def gres_conf(plan: Plan, folder: Path) -> str:
    """Return gres.conf: each node's GPUs are files that stand for devices."""
    return "".join(line for shape, numbers in _numbered(plan) for line in _gres_lines(shape, numbers, folder))


def _gres_lines(shape: Shape, numbers: str, folder: Path) -> Iterator[str]:
    first = 0
    for kind, count in shape.gpus:
        typed = f"Type={kind} " if kind else ""
        yield f"NodeName=n{numbers} Name=gpu {typed}File={folder}/dev/nvidia{_span(first, first + count - 1)}\n"
        first += count


def slurmdbd_conf(plan: Plan, folder: Path, user: str) -> str:
    """Return slurmdbd.conf for the sandbox's own database; `user` is what number 0 goes by inside."""
    return _SLURMDBD_CONF.format(head=HEAD, folder=folder, user=user, database=plan.cluster.replace("-", "_"))


def hosts(plan: Plan, host_file: str) -> str:
    """Return the hosts file of everything in the sandbox: the nodes, then what the machine's own says.

    Each node also by its address as IPv6 writes it: torch asks for the name of the peer behind an IPv6 socket, and
    nothing else would answer.
    """
    addresses = {HEAD: HEAD_ADDRESS, **{node: plan.address(node) for node in plan.node_names}}
    lines = [f"{prefix}{address} {name}" for prefix in ("", "::ffff:") for name, address in addresses.items()]
    return "\n".join([*lines, host_file])


def passwd(user: str, entry: str, host_file: str) -> str:
    """Return a passwd file in which user number 0 goes by the name of the user who made the sandbox.

    `entry` is that user's line after the two numbers: full name, home, shell.
    """
    others = [line for line in host_file.splitlines() if not line.startswith(f"{user}:")]
    return "\n".join([f"{user}:x:0:0:{entry}", *others]) + "\n"


_SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={head}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5,socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=50000,batch_sched_delay=0,bf_interval=1,default_queue_depth=1000,requeue_setup_env_fail
SchedulerType=sched/backfill
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
ReturnToService=2
SlurmdTimeout={plan.slurmd_timeout_s}
KillWait={plan.kill_wait_s}
MinJobAge=300
MaxArraySize=100001
MaxJobCount=200000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
"""

_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={address}
AccountingStoragePass={folder}/munge.socket
"""

_MEMORY_LIMITS = """\
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
"""

_PARTITIONS = (
    ("gpu", "Default=YES MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF"),
    ("low", "MaxTime=INFINITE PriorityTier=1 GraceTime=10"),
    ("nograce", "MaxTime=INFINITE PriorityTier=1 GraceTime=0"),
    ("cancel", "MaxTime=INFINITE PriorityTier=1 GraceTime=10 PreemptMode=CANCEL"),
    ("high", "MaxTime=INFINITE PriorityTier=100 PreemptMode=OFF"),
    ("short", "MaxTime=00:10:00 PriorityTier=10 PreemptMode=OFF"),
)

_STEADY = {"MaxTime": "INFINITE", "PriorityTier": "10", "PreemptMode": "OFF"}
"""A partition that says nothing else."""

_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={head}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc={database}
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
"""
