"""The bar at the foot of a terminal, and its absence elsewhere."""

import io
import os
import pty
import re
import subprocess
import sys

from slurmddp.cli.progress_bar import Bar, left, progress, words
from slurmddp.runs.layout import RunDir, append_record


def metrics(step: int, at: float, **values) -> dict:
    return {"event": "metrics", "job": "7", "step": step, "total": 100, "time": at, "values": values}


def test_the_rest_is_told_by_the_pace_so_far():
    assert left(metrics(10, 100.0), metrics(60, 150.0), now=160.0) == "0:00:30 left"
    assert left(metrics(10, 100.0), metrics(60, 150.0), now=999.0) == "0:00:00 left"
    assert left(metrics(10, 100.0), metrics(10, 100.0), now=160.0) == ""


def test_the_numbers_that_have_room_are_shown_and_others_left_out():
    assert words({"epoch": 3, "loss": 0.123456, "samples_per_s": 5321.7, "lr": 0.1}) == [
        "epoch 3",
        "loss 0.1235",
        "5322 samples/s",
    ]
    assert words({"loss": "nan", "epoch": None}) == []


def test_only_the_numbers_of_this_job_are_drawn(tmp_path):
    run = RunDir(tmp_path)
    bar = Bar(run, "7")
    assert bar.draw() == ""
    append_record(run.events, {**metrics(5, 1.0), "job": "6"})
    assert bar.draw() == ""
    append_record(run.events, metrics(5, 1.0, loss=1.0))
    assert bar.draw().row_count == 1


def test_without_a_terminal_lines_pass_as_they_are(tmp_path):
    stream, errors = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with progress(RunDir(tmp_path), "7", stream, errors=errors) as show:
        show(b"\xff\x1b[0m as it is\n")
    assert stream.buffer.getvalue() == b"\xff\x1b[0m as it is\n"
    assert errors.buffer.getvalue() == b""


PROGRAM = """
import os, sys, time
import slurmddp
with slurmddp.init("cpu") as ddp:
    import torch
    run = slurmddp.Checkpointer(model=torch.nn.Linear(2, 2))
    for step in run.steps(4):
        run.log(loss=0.5, samples_per_s=1234.0)
        print(f"line {step}")
        time.sleep(0.6)
"""


def on_a_terminal(*command: str, cwd, **environ: str) -> tuple[int, str]:
    """Run a command with a terminal for all its streams; return its status and what the terminal was sent."""
    here, there = pty.openpty()
    with subprocess.Popen(
        command, cwd=cwd, stdin=there, stdout=there, stderr=there, env={**os.environ, "TERM": "xterm", **environ}
    ) as process:
        os.close(there)
        seen = b""
        try:
            while block := os.read(here, 65536):
                seen += block
        except OSError:  # how a terminal says that nobody is left who writes
            pass
    os.close(here)
    return process.returncode, seen.decode()


def test_on_a_terminal_lines_stand_above_a_bar_that_goes_away(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = (sys.executable, "-m", "slurmddp", "run", "train.py")
    status, seen = on_a_terminal(*words, cwd=tmp_path, NO_COLOR="1", OMP_NUM_THREADS="1", COLUMNS="100")
    assert status == 0, seen
    assert re.findall(r"line \d", seen) == [f"line {step}" for step in range(4)]
    drawn = re.findall(r"step (\d)/4 [^\r\n]*loss 0.5 [^\r\n]*1234 samples/s", seen)
    assert drawn and drawn == sorted(drawn)
    assert "\x1b[2K" in seen, "the bar is erased"
    assert not re.search(r"\x1b\[[\d;]*3\dm", seen), "no colours"
    assert "run train: " in seen.rpartition("\x1b[2K")[2]
