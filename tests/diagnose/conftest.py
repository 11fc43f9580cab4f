"""Real runs that failed, as recorded: files, and when each was last written. Paths of the machine are taken out."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmddp.runs.layout import RunDir

FIXTURES = Path(__file__).parent / "fixtures"
BEGAN_S = 1795300000
"""In seconds since 1970; the times of a case count from its first file on."""


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[RunDir, str]]:
    """Return a function that puts a recorded run into a folder, and returns it with its job."""
    monkeypatch.chdir(tmp_path)

    def put(case: str) -> tuple[RunDir, str]:
        run = tmp_path / "jobs" / case
        shutil.copytree(FIXTURES / case, run)
        for name, after_s in json.loads((run / "times.json").read_text()).items():
            os.utime(run / name, (BEGAN_S + after_s, BEGAN_S + after_s))
        return RunDir(run), "17" if (run / "logs" / "17.out").exists() else "local-17"

    return put


@pytest.fixture
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that gives the recorded output of a job that slurmddp had not made."""
    monkeypatch.chdir(tmp_path)

    def put(case: str) -> Path:
        return Path(shutil.copy(FIXTURES / "hand" / f"{case}.out", tmp_path))

    return put
