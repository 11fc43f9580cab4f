"""Histories made by hand, and one that was recorded: a run on two nodes of a sandbox (Slurm 22.05), four ranks.

It was preempted, a rank of it was killed by `kill -9`, it was cancelled, and submitted again. Paths were shortened.
"""

import shutil
from pathlib import Path

import pytest
from report_pages import write_folder

from slurmddp.runs.history import Event, History
from slurmddp.runs.layout import RunDir

RECORDED = Path(__file__).parent / "recorded" / "fashion"


class Story:
    """A history, written down event by event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.job, self.attempt = "7", "0.0"

    def on(self, job: str, attempt: str) -> "Story":
        self.job, self.attempt = job, attempt
        return self

    def at(self, time: float, kind: str, **fields: object) -> "Story":
        self.events.append(Event(float(time), kind, self.job, self.attempt, fields))
        return self

    def save(self, time: float, step: int, held_s: float = 0.0, write_s: float = 0.0) -> "Story":
        return self.at(time, "checkpoint", step=step, held_s=held_s, write_s=write_s)

    @property
    def history(self) -> History:
        return History(tuple(self.events))


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Return the recorded run, in a folder of runs below the working directory, where no Slurm answers."""
    shutil.copytree(RECORDED, tmp_path / "jobs" / "fashion")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return RunDir(tmp_path / "jobs" / "fashion")


@pytest.fixture
def folder(recorded: RunDir) -> Path:
    """Return a folder of runs: two that were interrupted, one of them the recorded one, and a sweep."""
    write_folder(recorded.path.parent)
    return recorded.path.parent
