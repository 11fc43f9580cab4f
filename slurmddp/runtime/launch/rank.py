"""Reads this process's rank from the environment, and exports torch's variables and those of trackers.

Standard library only; no network.

Only the variables of the launcher in SLURMDDP_STARTED_BY count: two workers of torchrun inside one step both have the
SLURM_PROCID of their agent.
"""

from __future__ import annotations
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from slurmddp import variables
from slurmddp.errors import RankError
from slurmddp.old_python import dataclass
from slurmddp.runs.files import create_exclusively
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import ownership_of
from slurmddp.slurm.job_info import JobRef

Launcher = Literal["srun", "fork", "torchrun", "mpi", "single"]
Environment = Mapping[str, str]

SRUN_LINE = "start it with srun: srun python -m slurmddp.worker ..."
PORT_LINE = (
    "the batch script of `slurmddp submit` sets it: use that, or `slurmddp run`, or export MASTER_ADDR and MASTER_PORT"
)
TORCHRUN_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MPI_PREFIX = "OMPI_COMM_WORLD_"


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The identity of this process among the processes of one training."""

    rank: int
    """0 to world_size - 1."""
    local_rank: int
    """0 to local_world_size - 1, on this node."""
    world_size: int
    local_world_size: int
    node_rank: int
    """This node's place among the nodes, 0 for the head."""
    host: str
    """This node's name, as Slurm spells it where Slurm started the process."""
    launcher: Launcher
    hosts: tuple[str, ...] = ()
    """The nodes in order; empty when they are unknown."""
    run_dir: RunDir | None = None
    """None for a process that slurmddp did not start; it writes no records."""
    job: str = ""
    """The job id as file names have it."""
    attempt: str = ""
    """`<SLURM_RESTART_COUNT>.<n>`."""
    master_addr: str
    """Name or address of the head, as given; see `slurmddp.runtime.launch.addresses`."""
    master_port: int
    store_port: int
    """Port of the rendezvous; equal to master_port when torchrun's agent holds the store."""
    agent_store: bool = False
    """Whether torchrun's agent, not rank 0, holds the store."""
    agent_in_step: bool = False
    """Whether torchrun's agent is a task of the job's own step."""
    secret: str = field(default="", repr=False)
    """What the processes of this attempt alone know; empty where they were started by other means."""
    init_file: Path | None = None
    """The file by which the ranks form their group; None if they use a port of the head."""
    restarts: int = 0
    """How often the ranks were started before in this allocation."""
    stop_at: float | None = None
    """When to stop, in seconds since 1970; None without a time limit."""
    attached: bool = False
    """Whether a person's own launch line has started it: its variables and its exit status are the program's."""

    def __post_init__(self) -> None:
        """Refuse numbers that contradict each other."""
        if self.rank >= self.world_size:
            raise RankError(f"rank {self.rank} is not below the world size {self.world_size}")
        if self.local_rank >= self.local_world_size:
            raise RankError(f"local rank {self.local_rank} is not below the local world size {self.local_world_size}")
        if self.local_world_size > self.world_size:
            raise RankError(f"local world size {self.local_world_size} is more than the world size {self.world_size}")

    @property
    def is_main(self) -> bool:
        """Whether this is global rank 0, which writes and prints."""
        return self.rank == 0

    @property
    def under_srun(self) -> bool:
        """Whether the job's own srun started the ranks, directly or through one parent a node."""
        return self.launcher in ("srun", "fork") or self.agent_in_step

    @property
    def nodes(self) -> int:
        """Number of nodes, if each has as many ranks as this one."""
        return -(-self.world_size // self.local_world_size)

    def check_owner(self) -> None:
        """Raise FencedError if another attempt owns the run: this one must not write then."""
        if self.run_dir and (owner := ownership_of(self.run_dir.owner, os.environ)):
            owner.check()

    def host_of(self, rank: int) -> str:
        """Return the host on which srun's block distribution puts a rank; empty when the hosts are unknown."""
        node = rank // self.local_world_size
        return self.hosts[node] if node < len(self.hosts) else ""

    def list_ranks(self, ranks: Iterable[int]) -> str:
        """Return `ranks 2, 3 (n2), rank 5 (n3)`."""
        by_host: dict[str, list[int]] = {}
        for number in ranks:
            by_host.setdefault(self.host_of(number), []).append(number)
        return ", ".join(list_ranks(some) + (f" ({host})" if host else "") for host, some in by_host.items())


def list_ranks(ranks: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0, 1`."""
    words = [str(number) for number in sorted(ranks)]
    return f"rank{'s' if len(words) > 1 else ''} {', '.join(words)}"


def read_attached_rank(environment: Environment) -> Rank:
    """Return the identity of a process that a person's own launch line has started.

    It is alone, and writes no records, where the variables contradict each other.
    """
    found = {**environment, variables.ATTACHED: "1"}
    is_named = all(name in found for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    launcher = "torchrun" if is_named else "mpi" if MPI_PREFIX + "RANK" in found else "srun"
    found.setdefault("MASTER_ADDR", found.get(variables.HEAD_ADDRESS) or "localhost")
    found.setdefault("MASTER_PORT", found.get(variables.STORE_PORT, "29500"))
    try:
        return read_rank(found | {variables.STARTED_BY: launcher})
    except RankError:
        return replace(read_rank({variables.STARTED_BY: "single"}), attached=True)


def read_rank(environment: Environment) -> Rank:
    """Return the identity of this process.

    Raises RankError when the variables contradict each other, are missing, or show that srun was forgotten.
    """
    launcher = _launcher(environment)
    numbers = _READERS[launcher](environment)
    if launcher == "single":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            free_port = str(listener.getsockname()[1])
        environment = {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}
    if not environment.get("MASTER_ADDR"):
        raise RankError(f"MASTER_ADDR is not set; {PORT_LINE}")
    port = _port(environment, "MASTER_PORT")
    init_file = environment.get(variables.RENDEZVOUS_FILE)
    last = int(environment.get(variables.ATTEMPT, "0").rpartition(".")[2])
    is_torchrun = launcher == "torchrun"
    in_own_step = is_torchrun and _in_own_step(environment)
    own_port = variables.STORE_PORT in environment
    agent_store = is_torchrun and not own_port and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    folder = environment.get(variables.RUN_DIR)
    host = environment.get("SLURMD_NODENAME") if launcher in ("srun", "fork") or in_own_step else None
    return Rank(
        **numbers,
        host=host or socket.gethostname(),
        launcher=launcher,
        hosts=tuple(environment.get(variables.HOSTS, "").split()),
        run_dir=RunDir(Path(folder), environment.get(variables.TRAINING, "checkpoints")) if folder else None,
        job=environment.get(variables.JOB_ID, ""),
        attempt=environment.get(variables.ATTEMPT, ""),
        master_addr=environment["MASTER_ADDR"],
        master_port=port,
        store_port=_port(environment, variables.STORE_PORT) if own_port else port + (not agent_store),
        agent_store=agent_store,
        agent_in_step=in_own_step,
        secret=environment.get(variables.SECRET, ""),
        init_file=Path(init_file.removeprefix("file://")) if init_file else None,
        restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", default=0) if is_torchrun else last,
        stop_at=_number(environment, variables.STOP_AT) if environment.get(variables.STOP_AT) else None,
        attached=variables.ATTACHED in environment,
    )


def export(rank: Rank, environment: MutableMapping[str, str]) -> None:
    """Set the variables of torch and of torchrun's scripts, and unset those of other launchers."""
    torchrun = r"TORCHELASTIC_|TORCH_NCCL_ASYNC_ERROR_HANDLING$|ROLE_(RANK|WORLD_SIZE|NAME)$|GROUP_(RANK|WORLD_SIZE)$"
    slurm = r"SLURM_(PROCID|LOCALID|NODEID|NTASKS|NPROCS|STEP_ID|STEPID|STEP_NUM_TASKS)$"
    others = {"torchrun": f"{slurm}|{MPI_PREFIX}", "mpi": f"{slurm}|{torchrun}"}
    leaked = others.get(rank.launcher, f"{torchrun}|{MPI_PREFIX}")  # they could mislead the user's program
    for name in [name for name in environment if re.match(leaked, name)]:
        del environment[name]
    numbers = {
        "RANK": rank.rank,
        "LOCAL_RANK": rank.local_rank,
        "WORLD_SIZE": rank.world_size,
        "LOCAL_WORLD_SIZE": rank.local_world_size,
        "GROUP_RANK": rank.node_rank,
        "GROUP_WORLD_SIZE": rank.nodes,
        "ROLE_RANK": rank.rank,
        "ROLE_WORLD_SIZE": rank.world_size,
        "MASTER_PORT": rank.master_port,
    }
    environment.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR=rank.master_addr)
    if rank.launcher != "torchrun":
        restarts = str(rank.restarts)
        environment.update(ROLE_NAME="default", TORCHELASTIC_RUN_ID=rank.job or "none")
        environment.update(TORCHELASTIC_RESTART_COUNT=restarts, TORCHELASTIC_MAX_RESTARTS=restarts)
    if rank.agent_in_step:
        environment.update(step_variables(rank.rank, rank.local_rank, rank.world_size, rank.local_world_size))
    if rank.run_dir and "TORCHELASTIC_ERROR_FILE" not in environment:
        environment["TORCHELASTIC_ERROR_FILE"] = str(rank.run_dir.rank_error(rank.job, rank.attempt, rank.rank))


def step_variables(rank: int, local_rank: int, world_size: int, local_world_size: int) -> dict[str, str]:
    """Return the variables that srun would have set if it had started this rank, and as many on each node."""
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NTASKS": str(world_size),
        "SLURM_NPROCS": str(world_size),
        "SLURM_STEP_NUM_TASKS": str(world_size),
        "SLURM_NTASKS_PER_NODE": str(local_world_size),
        "SLURM_STEP_TASKS_PER_NODE": f"{local_world_size}(x{world_size // local_world_size})",
    }


def export_ids(rank: Rank, environment: MutableMapping[str, str]) -> None:
    """Let wandb and MLflow go on with one run over all attempts, unless the user has set a variable or wants none.

    Their ids are in the run's folder, in `tracker-id` and `mlflow-run-id`; that of MLflow is chosen by MLflow. Ranks
    other than 0 get no id: two processes must not write to one tracker's run.
    """
    run = _run_of(rank, environment)
    if run is None:
        return
    with suppress(OSError):  # a full disk is not the tracker's concern
        create_exclusively(run.tracker_id, os.urandom(16).hex())
        if "WANDB_RUN_ID" not in environment and "WANDB_RESUME" not in environment:
            environment.update(WANDB_RUN_ID=run.tracker_id.read_text().strip(), WANDB_RESUME="allow")
    with suppress(OSError):
        environment.setdefault("MLFLOW_RUN_ID", run.mlflow_run_id.read_text().strip())


def record_mlflow_run(rank: Rank) -> None:
    """Record the first run that the program has started in MLflow, for the next attempts.

    MLFLOW_RUN_ID must name a run that exists, and MLflow chooses the id; `start_run` uses and removes the variable.
    """
    mlflow, run = sys.modules.get("mlflow"), _run_of(rank, os.environ)
    if mlflow is None or run is None or run.mlflow_run_id.exists():
        return
    with suppress(Exception):  # no failure of a tracker ends a training
        if active := mlflow.active_run():
            create_exclusively(run.mlflow_run_id, active.info.run_id)


def _run_of(rank: Rank, environment: MutableMapping[str, str]) -> RunDir | None:
    """Return the run whose ids this rank uses; None without one."""
    return rank.run_dir if rank.is_main and environment.get(variables.SKIP_TRACKER_IDS) != "1" else None


def _launcher(environment: Environment) -> Launcher:
    """Return the launcher that the batch script names; without a name, the one whose variables are there."""
    named = environment.get(variables.STARTED_BY)
    if found := next((launcher for launcher in _READERS if launcher == named), None):
        return found
    if all(name in environment for name in TORCHRUN_NAMES):
        return "torchrun"
    if _step(environment):
        tasks = environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS"))
        is_alone = tasks == "1" and "MASTER_ADDR" not in environment  # as of `srun -n1` typed in a shell
        return "single" if is_alone else "srun"
    if MPI_PREFIX + "RANK" in environment:
        return "mpi"
    if "SLURM_JOB_ID" in environment and environment.get("SLURM_NTASKS", "1") != "1":
        raise RankError(
            f"not started by srun: this allocation has SLURM_NTASKS={environment['SLURM_NTASKS']} tasks and this "
            f"process is in no step; {SRUN_LINE}"
        )
    return "single"


def _step(environment: Environment) -> str | None:
    return environment.get("SLURM_STEP_ID", environment.get("SLURM_STEPID"))


def _read_task(environment: Environment) -> dict[str, int]:
    """Return the numbers of a task of srun."""
    if _step(environment) is None and environment.get(variables.STARTED_BY) != "fork":
        raise RankError(f"not started by srun: SLURM_STEP_ID is not set; {SRUN_LINE}")
    node, world_size = _number(environment, "SLURM_NODEID"), _number(environment, "SLURM_NTASKS", least=1)
    return {
        "rank": _number(environment, "SLURM_PROCID"),
        "local_rank": _number(environment, "SLURM_LOCALID"),
        "world_size": world_size,
        "local_world_size": _tasks_of_node(environment, node, world_size),
        "node_rank": place_of_node(environment),
    }


def _read_torchrun(environment: Environment) -> dict[str, int]:
    """Read torchrun's numbers; under the job's own srun, ranks are numbered by the job's order of nodes.

    The agents' rendezvous orders nodes by name as text, n10 before n2 (torch.distributed.elastic.rendezvous).
    """
    numbers = _read_by_blocks(environment, "", "WORLD_SIZE")
    if _in_own_step(environment) and variables.ATTACHED not in environment:
        node = place_of_node(environment)
        return {**numbers, "node_rank": node, "rank": node * numbers["local_world_size"] + numbers["local_rank"]}
    return {**numbers, "node_rank": _number(environment, "GROUP_RANK", default=numbers["node_rank"])}


def _read_by_blocks(environment: Environment, prefix: str = MPI_PREFIX, size: str = "SIZE") -> dict[str, int]:
    """Return what torchrun and mpirun name alike, for ranks that come node by node."""
    rank, local_rank = _number(environment, prefix + "RANK"), _number(environment, prefix + "LOCAL_RANK")
    world_size = _number(environment, prefix + size, least=1)
    share = None
    if variables.ATTACHED in environment:  # a person's own launcher may not say it: deepspeed, srun with own variables
        share = max(world_size // _number(environment, "SLURM_NNODES", default=1, least=1), local_rank + 1)
    local_world_size = _number(environment, f"{prefix}LOCAL_{size}", default=share, least=1)
    return {
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "local_world_size": local_world_size,
        "node_rank": rank // local_world_size,
    }


def _in_own_step(environment: Environment) -> bool:
    """Return whether the job's own srun started this process, and not a user inside some other step."""
    jobs = {environment[name] for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID") if name in environment}
    return _step(environment) is not None and JobRef.parse(environment.get(variables.JOB_ID, "")).array_id in jobs


_READERS: dict[Launcher, Callable[[Environment], dict[str, int]]] = {
    "srun": _read_task,
    "fork": _read_task,
    "torchrun": _read_torchrun,
    "mpi": _read_by_blocks,
    "single": lambda _: {"rank": 0, "local_rank": 0, "world_size": 1, "local_world_size": 1, "node_rank": 0},
}


def _tasks_of_node(environment: Environment, node: int, world_size: int) -> int:
    """Read `8(x2),4` of SLURM_STEP_TASKS_PER_NODE; without it, nodes have equal shares."""
    written = environment.get("SLURM_STEP_TASKS_PER_NODE")
    if written is None:
        return -(-world_size // _number(environment, "SLURM_NNODES", default=1, least=1))
    counts: list[int] = []
    for part in written.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part, re.ASCII)
        if not match:
            raise RankError(f"SLURM_STEP_TASKS_PER_NODE={written!r} is not of the form 8(x2),4")
        counts += [int(match[1])] * int(match[2] or 1)
    if node >= len(counts):
        raise RankError(f"SLURM_NODEID={node} is not below the {len(counts)} nodes of {written!r}")
    return counts[node]


def place_of_node(environment: Environment) -> int:
    """Return this node's place in the order of the ranks; with a topology (Slurm 26.05) that is not SLURM_NODEID."""
    hosts, host = environment.get(variables.HOSTS, "").split(), environment.get("SLURMD_NODENAME")
    return hosts.index(host) if host in hosts else _number(environment, "SLURM_NODEID")


def _number(environment: Environment, name: str, *, default: int | None = None, least: int = 0) -> int:
    raw = environment.get(name)
    if raw is None:
        if default is None:
            raise RankError(f"{name} is not set; {SRUN_LINE}")
        return default
    if not re.fullmatch(r"\d{1,12}", raw, re.ASCII) or int(raw) < least:
        raise RankError(f"{name}={raw!r} is not a whole number, {least} or more")
    return int(raw)


def _port(environment: Environment, name: str) -> int:
    if name not in environment:
        raise RankError(f"{name} is not set; {PORT_LINE}")
    port = _number(environment, name, least=1)
    if port >= 65535:  # noqa: PLR2004 - the last port; the one after master_port may be needed
        raise RankError(f"{name}={port} is not a port below 65535")
    return port
