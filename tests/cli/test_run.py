"""The progress bar on a terminal, and unchanged output without one."""

import io
import re
import sys

from command_line import on_a_terminal

from slurmddp.cli.run import draw_progress, show_progress
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir


def metrics(step: int, at: float, **values) -> dict:
    return {"event": "metrics", "job": "7", "step": step, "total": 100, "time": at, "values": values}


def test_only_metrics_of_this_job_are_drawn(tmp_path):
    run = RunDir(tmp_path)
    assert draw_progress(run, "7") == ""
    append_record(run.events, {**metrics(5, 1.0), "job": "6"})
    assert draw_progress(run, "7") == ""
    append_record(run.events, metrics(5, 1.0, loss=1.0))
    assert draw_progress(run, "7").row_count == 1


def test_without_a_terminal_lines_are_unchanged(tmp_path):
    stream, errors = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with show_progress(RunDir(tmp_path), "7", stream, errors=errors) as show:
        show(b"\xff\x1b[0m as it is\n")
    assert stream.buffer.getvalue() == b"\xff\x1b[0m as it is\n"
    assert errors.buffer.getvalue() == b""


RUN = """
import sys, time
from slurmddp.cli import run_command_line
from slurmddp.runs.files import append_record
from slurmddp.submission import run_local

def perform(plan, show):
    plan.run.create()
    for step in range(4):
        values = {"loss": 0.5, "samples_per_s": 1234.0}
        head = {"event": "metrics", "job": plan.job_id, "step": step, "total": 4, "time": float(step)}
        append_record(plan.run.events, {**head, "values": values})
        show(f"line {step}\\n".encode())
        time.sleep(0.3)
    return 0

run_local.perform = perform
sys.exit(run_command_line(["run", "train.py"]))
"""
"""`slurmddp run` with a stand-in for the ranks."""


def test_on_a_terminal_lines_are_above_a_bar_that_is_erased(tmp_path):
    (tmp_path / "train.py").touch()
    status, seen = on_a_terminal(sys.executable, "-c", RUN, cwd=tmp_path, NO_COLOR="1", COLUMNS="100")
    seen = seen.decode()
    assert status == 0, seen
    assert re.findall(r"line \d", seen) == [f"line {step}" for step in range(4)]
    drawn = re.findall(r"step (\d)/4 [^\r\n]*loss 0.5 [^\r\n]*1234 samples/s", seen)
    assert drawn and drawn == sorted(drawn)
    assert "\x1b[2K" in seen, "the bar is erased"
    assert not re.search(r"\x1b\[[\d;]*3\dm", seen), "no colours"
    assert "run train: " in seen.rpartition("\x1b[2K")[2]
