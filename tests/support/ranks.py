"""A rank as a value, for tests that start none."""

from slurmddp.runtime.launch.rank import Rank


def make_rank(rank: int = 0, world_size: int = 1, **changes) -> Rank:
    """Return one of the ranks of node n1, unless the changes say something else."""
    numbers = {"rank": rank, "local_rank": rank, "world_size": world_size, "local_world_size": world_size}
    ports = {"master_addr": "127.0.0.1", "master_port": 1, "store_port": 2}
    return Rank(**{**numbers, **ports, "node_rank": 0, "host": "n1", "launcher": "srun", **changes})
