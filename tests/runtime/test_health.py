"""What is said of facts that do not fit together, and that it is said while real processes meet."""

import json
import os

import pytest

from slurmddp.errors import RankError
from slurmddp.rundir import RunDir, read_records
from slurmddp.runtime.environment import Rank
from slurmddp.runtime.health import gpus, judgement, speed
from slurmddp.runtime.health.facts import Facts, digest, gather, script_of, versions
from slurmddp.runtime.health.preflight import Preflight
from tests_runtime_roster import meet, ranks  # type: ignore[import-not-found]


def facts(rank: int, **changes) -> Facts:
    """Return a healthy rank: two a node, four CPUs each of eight, a GPU each of two."""
    well = {
        "rank": rank,
        "local_rank": rank % 2,
        "node_rank": rank // 2,
        "host": f"n{rank // 2 + 1}",
        "versions": {"torch": "2.13.0"},
        "script": "train.py",
        "digest": "abc",
        "gpus": ["GPU-a", "GPU-b"],
        "cpus": list(range(4 * (rank % 2), 4 * (rank % 2) + 4)),
        "cpus_wanted": 4,
        "cpus_of_node": 8,
        "shm_mb": 8000,
    }
    return Facts(**(well | changes))
