"""The ways to start one program on a cluster: slurmddp's launchers and its peers. Each submits, and returns the job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import MappingProxyType

from cluster import Cluster
from programs import HERE, PEERS, PEERS_PYTHON, SLURMDDP

TRAININGS = HERE / "trainings"
HEADER = """#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node={tasks} --partition={partition} --output={folder}/slurm-%j.out {more}
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
"""
BY_SRUN = """srun --kill-on-bad-exit=1 bash -c \\
  'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; exec {program}'
"""
BY_TORCHRUN = """srun --kill-on-bad-exit=1 \\
  {bin}/torchrun --nnodes={nodes} --nproc-per-node={ranks} --rdzv-backend=c10d \\
  --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID" --max-restarts={restarts} {program}
"""

_number = count()


@dataclass(frozen=True)
class Launch:
    """A program, its words, and the size of its job."""

    program: Path
    words: tuple[str, ...]
    nodes: int
    ranks: int
    """Of each node."""
    partition: str = "gpu"
    options: tuple[str, ...] = field(default=())
    """More options for `slurmddp submit`."""


Start = Callable[[Cluster, Launch], str]


def by_slurmddp(launcher: str) -> Start:
    def start(cluster: Cluster, launch: Launch) -> str:
        size = [f"--nodes={launch.nodes}", f"--ntasks-per-node={launch.ranks}", f"--partition={launch.partition}"]
        name = f"--name=run-{next(_number)}"
        words = [SLURMDDP, "submit", *size, f"--launcher={launcher}", name, *launch.options]
        return cluster.run([*words, str(launch.program), *launch.words]).strip()

    return start


def by_srun(cluster: Cluster, launch: Launch) -> str:
    program = " ".join([PEERS_PYTHON, str(launch.program), *launch.words])
    return _sbatch(cluster, launch, BY_SRUN.format(program=program), tasks=launch.ranks)


def by_torchrun(cluster: Cluster, launch: Launch, restarts: int = 0) -> str:
    program = " ".join([str(launch.program), *launch.words])
    body = BY_TORCHRUN.format(bin=PEERS, nodes=launch.nodes, ranks=launch.ranks, restarts=restarts, program=program)
    return _sbatch(cluster, launch, body, tasks=1, more=f"--cpus-per-task={launch.ranks}")


def _sbatch(cluster: Cluster, launch: Launch, body: str, *, tasks: int, more: str = "") -> str:
    head = HEADER.format(nodes=launch.nodes, tasks=tasks, partition=launch.partition, folder=cluster.folder, more=more)
    script = cluster.folder / f"by-hand-{next(_number)}.sh"
    script.write_text(head + body)
    return cluster.run(["sbatch", "--parsable", str(script)]).strip()


def by_submitit(cluster: Cluster, launch: Launch) -> str:
    size = [str(launch.nodes), str(launch.ranks), launch.partition, "10"]
    script = [PEERS_PYTHON, str(TRAININGS / "by_submitit.py"), *size]
    return cluster.run([*script, str(launch.program), *launch.words]).strip()


def by_torchx(cluster: Cluster, launch: Launch) -> str:
    size = [str(launch.nodes), str(launch.ranks), launch.partition]
    script = [PEERS_PYTHON, str(TRAININGS / "by_torchx.py"), *size]
    return cluster.run([*script, str(launch.program), *launch.words]).strip()


OURS: Mapping[str, Start] = MappingProxyType(
    {f"slurmddp, {launcher}": by_slurmddp(launcher) for launcher in ("fork", "srun", "torchrun")}
)
PEERS_STARTS: Mapping[str, Start] = MappingProxyType(
    {"sbatch and srun": by_srun, "srun torchrun": by_torchrun, "submitit": by_submitit, "torchx": by_torchx}
)
