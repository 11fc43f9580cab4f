"""Finds the model files that `slurmddp compare` compares, and compares them in a process that loads torch."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.text import quote_value

SAME: Final = 0
DIFFERENT: Final = 1


def find_model_files(targets: Sequence[str], runs_dir: str) -> list[Path]:
    """Return the model file of each target; for a single run, the models of its ranks.

    Raises UsageError when there are not two.
    """
    if len(targets) == 1:
        return _rank_models(targets[0], runs_dir)
    return [_model_file(target, runs_dir) for target in targets]


def compare(paths: Sequence[Path], *, atol: float) -> dict[str, Any]:
    """Return what `slurmddp.runtime.compare_models` says of the files.

    Raises UsageError for a file that cannot be read, SlurmddpError when the comparison itself ends badly.
    """
    words = [sys.executable, "-P", "-m", "slurmddp.runtime.compare_models", f"--atol={atol!r}", "--", *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode in (SAME, DIFFERENT) and done.stdout:
        result: dict[str, Any] = json.loads(done.stdout)
        return result
    said = done.stderr.strip().rpartition("\n")[2]
    if done.returncode == UsageError.exit_status:
        raise UsageError(said.removeprefix("Error: "))
    raise SlurmddpError(
        f"the comparison ended with status {done.returncode}: {said or 'killed, as when memory is short'}"
    )


def _rank_models(target: str, runs_dir: str) -> list[Path]:
    if Path(target).is_file():
        raise UsageError(
            f"one file alone, {quote_value(target)}; give a second, or a run whose ranks are to be compared"
        )
    run = _find_run(target, runs_dir)
    found = run.rank_models
    if len(found) < 2:  # noqa: PLR2004 - it takes two to compare
        raise UsageError(
            f"run {quote_value(target)} has {len(found)} of its ranks' models; train it with the bundled worker's "
            "--save-all-ranks, or give two files"
        )
    return found


def _model_file(target: str, runs_dir: str) -> Path:
    if Path(target).is_file():
        return Path(target)
    path = _find_run(target, runs_dir).model
    if not path.is_file():
        raise UsageError(f"run {quote_value(target)} has no model.pt: it has not finished; give a file")
    return path


def _find_run(target: str, runs_dir: str) -> RunDir:
    """Return the run in the folder `target`, or with this name."""
    for folder in (Path(target), Path(runs_dir, target)):
        if folder.is_dir():
            return RunDir(folder)
    raise UsageError(f"{quote_value(target)} is no file, and no run in {runs_dir}; give one of them, or --runs-dir")
