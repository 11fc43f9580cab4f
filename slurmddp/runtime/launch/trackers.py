"""Lets wandb and MLflow go on with one run over all attempts: sets their variables in rank 0's environment.

A tracker's run belongs to the run's folder: its id is in the file `tracker-id`, that of MLflow, which MLflow chooses,
in `mlflow-run-id`. The other ranks get no id: two processes must not write to one tracker's run.
"""

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress

from slurmddp import variables
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import create_exclusively
from slurmddp.runtime.launch.rank import Rank


def export_ids(rank: Rank, environment: MutableMapping[str, str]) -> None:
    """Set the ids of the run in the trackers' variables, unless the user has set one of these or wants none."""
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
