"""Starts programs as the one rank of a run, and reads what they print. Starts processes."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from programs import HERE

from slurmddp import variables
from slurmddp.runs.layout import RunDir

JOB, ATTEMPT = "17", "0.0"
LIMIT_S = 120
PROGRAMS = HERE / "trainings"


def environment_of_rank(run: RunDir, *, on_gpu: bool) -> dict[str, str]:
    """Return the environment of a run's only rank, whose folders are made."""
    run.attempt(JOB, ATTEMPT).mkdir(parents=True)
    ours = {
        variables.STARTED_BY: "single",
        variables.RUN_DIR: str(run.path),
        variables.JOB_ID: JOB,
        variables.ATTEMPT: ATTEMPT,
        variables.CHECKPOINT_DIR: str(run.checkpoints),
    }
    return {**os.environ, **ours, **({} if on_gpu else {"CUDA_VISIBLE_DEVICES": ""})}


def run_rank(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run `python WORDS` and return what it prints; raise CalledProcessError, with its stderr shown, when it fails."""
    done = subprocess.run(
        [sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S
    )
    return done.stdout
