"""What TensorBoard will show of a run."""

import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slurmddp.runs.layout import RunDir
from slurmddp.worker.bundled.metrics import Board


def scalars(run: RunDir, name: str) -> list[tuple[int, float]]:
    shown = EventAccumulator(str(run.tensorboard))
    shown.Reload()
    return [(event.step, event.value) for event in shown.Scalars(name)]


def test_a_resumed_run_shows_no_step_twice(tmp_path):
    run = RunDir(tmp_path)
    first = Board(run, 0)
    for step in range(6):
        first.log(step, {"loss": 1.0, "accuracy": None})
    second = Board(run, 4)
    for step in range(4, 8):
        second.log(step, {"loss": 2.0})
    assert scalars(run, "loss") == [(step, 1.0) for step in range(4)] + [(step, 2.0) for step in range(4, 8)]


@pytest.mark.preloaded
def test_the_bundled_worker_writes_its_numbers_and_ends(alone):
    ended = alone("--task=linear", "--epochs=2", "--tensorboard")
    assert ended.statuses == [0], ended.stderr
    events = [(event["step"], event["values"]["loss"]) for event in ended.events("metrics")]
    assert [(step, pytest.approx(loss)) for step, loss in events] == scalars(ended.run, "loss")
    assert {event["values"]["lr"] for event in ended.events("metrics")} == {0.03}


def test_a_full_disk_ends_the_writing_alone(tmp_path):
    """A limit on the size of files stands for it; the second board cannot even begin."""
    code = f"""
import resource
from pathlib import Path
from slurmddp.runs.layout import RunDir
from slurmddp.worker.bundled.metrics import Board
first = Board(RunDir(Path({str(tmp_path)!r})), 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for step in range(200):
    first.log(step, {{"loss": 1.0}})
Path({str(tmp_path / "b")!r}).touch()
Board(RunDir(Path({str(tmp_path / "b")!r})), 0).log(1, {{"loss": 1.0}})
print("trained")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.partition(": the metrics for TensorBoard can no longer")[0] for line in done.stdout.splitlines()]
    assert lines == ["WARNING", "WARNING", "trained"]


def test_without_the_package_there_is_one_line(alone, tmp_path):
    (tmp_path / "none" / "tensorboard").mkdir(parents=True)
    (tmp_path / "none" / "tensorboard" / "__init__.py").write_text("raise ModuleNotFoundError('tensorboard')\n")
    words = ("--task=linear", "--epochs=1")
    ended = alone(*words, "--tensorboard", PYTHONPATH=str(tmp_path / "none"))
    assert ended.statuses == [77]
    assert ended.stderr.splitlines()[-1].startswith("Error: --tensorboard needs the package tensorboard")
    assert "Traceback" not in ended.stderr
    assert alone(*words, PYTHONPATH=str(tmp_path / "none")).statuses == [0]
