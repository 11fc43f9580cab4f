"""`slurmddp logs`: its output as text and JSON, on a pipe and on a terminal."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from command_line import on_a_terminal
from polling import until

from slurmddp.cli import run_command_line
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir

WORDS = [sys.executable, "-m", "slurmddp", "logs"]
BEGINS = b"2026-01-01T10:00:00+0000 slurmddp: job 7, attempt 0.0, on n[1-2]\n"
HEAD = {"time": 1.0, "job": "7", "attempt": "0.0", "rank": None, "host": "n1"}


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "jobs" / "r")
    made.create()
    append_record(made.submissions, {"job": "7", "time": "2026-01-01T09:00:00+00:00"})
    made.attempt("7", "0.0").mkdir(parents=True)
    made.batch_log("7").write_bytes(BEGINS)
    made.rank_log("7", "0.0", 0).write_bytes(b"a\x1b[1mb\xff\r 20%\r\nlast")
    made.rank_log("7", "0.0", 1).write_bytes(b"ValueError: boom\nfine\n")
    append_record(made.events, {**HEAD, "event": "attempt_start", "nodes": "n[1-2]", "log_offset": 0})
    append_record(made.events, {**HEAD, "event": "start", "rank": 0, "ranks": {"n1": "0", "n2": "1"}})
    return made


@pytest.fixture
def logs(run, monkeypatch, capsysbinary):
    """Return a function that runs `slurmddp logs` in the folder of the run, and returns what it printed as bytes."""
    monkeypatch.chdir(run.path.parent.parent)

    def call(*words):
        status = run_command_line(["logs", *words])
        return subprocess.CompletedProcess(words, status, *capsysbinary.readouterr())

    return call


def test_on_a_pipe_bytes_are_unchanged(logs, run):
    done = logs()
    assert (done.returncode, done.stdout, done.stderr) == (0, BEGINS + b"a\x1b[1mb\xff\r 20%\r\nlast", b"")
    with run.batch_log("7").open("ab") as file:
        file.write(b"srun: error\n")
    assert logs().stdout.endswith(b"last\nsrun: error\n")
    assert logs("--rank", "1", "-n", "1").stdout == b"fine\n"


def test_lines_of_several_ranks_begin_with_rank_and_host(logs):
    done = logs("r", "--all")
    assert done.stdout == (
        b"batch | " + BEGINS + b"rank 0 n1 | a\x1b[1mb\xff\r 20%\n"
        b"rank 0 n1 | last\nrank 1 n2 | ValueError: boom\nrank 1 n2 | fine\n"
    )
    assert logs("7", "--rank", "1", "--rank", "0", "-n", "1").stdout == b"rank 1 n2 | fine\n"


def test_lines_with_errors_begin_with_file_and_line_number(logs):
    done = logs("--errors")
    assert done.stdout == b"jobs/r/logs/7/0.0/1.out:1: rank 1 on n2 | ValueError: boom\n"
    none = logs("--errors", "--rank", "0")
    assert (none.returncode, none.stdout) == (0, b"") and b"no line that looks like an error" in none.stderr


def test_the_errors_of_the_rank_that_failed_first_come_first(logs, run):
    run.rank_log("7", "0.0", 0).write_bytes(b"2026-01-01T10:00:01Z ERROR a\n2026-01-01T10:00:03Z RuntimeError: peer\n")
    run.rank_log("7", "0.0", 1).write_bytes(b"2026-01-01T10:00:02Z ValueError: boom\n")
    run.rank_record("7", "0.0", 0).write_text("76 rank 0 on n1: RuntimeError: peer\n")

    def shown(*words):
        return [line.rpartition(b"Z ")[2] for line in logs("--errors", *words).stdout.splitlines()]

    assert shown("--rank", "0", "--rank", "1") == [b"ERROR a", b"RuntimeError: peer", b"ValueError: boom"]
    run.rank_record("7", "0.0", 1).write_text("77 rank 1 on n2: ValueError: boom\n")
    assert shown() == [b"ValueError: boom", b"ERROR a", b"RuntimeError: peer"]
    assert shown("-n", "2") == [b"ValueError: boom", b"RuntimeError: peer"], "a tail is the end by time"


def test_of_a_run_that_failed_eight_error_lines_are_shown_that_matter(logs, run):
    frames = "".join(f'  File "/env/site-packages/x{depth}.py", line 1, in f\n    f()\n' for depth in range(20))
    own = f'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    main()\n{frames}'
    for rank, error in enumerate(("RuntimeError: Connection closed by peer", *["ValueError: boom"] * 3)):
        run.rank_log("7", "0.0", rank).write_text(f"ERROR: retrying {rank}\n" * 9 + own + f"{error}\n")
        run.rank_record("7", "0.0", rank).write_text(f"{76 if rank == 0 else 77} rank {rank} on n1: {error}\n")
    done = logs("--errors")
    shown = [line.partition(b" | ")[2].strip() for line in done.stdout.splitlines()]
    assert len(shown) == 8 and len({*shown}) == 8
    assert {b"ValueError: boom", b'File "/home/me/train.py", line 9, in <module>'} <= {*shown}
    assert b"RuntimeError: Connection closed by peer" in shown, "what another rank raised"
    assert re.search(rb"\d+ more lines look like errors; type: slurmddp logs r --errors -n 100$", done.stderr.strip())
    assert len(logs("--errors", "-n", "100").stdout.splitlines()) == 100
    assert len(logs("--errors", "--json").stdout.splitlines()) > 100, "a program is given all"
    sweep = RunDir(run.path.with_name("sweep"))
    sweep.create()
    append_record(sweep.submissions, {"job": "7", "time": "2026-01-01T09:00:00+00:00", "settings": [{"lr": "1"}]})
    (run.logs / "7").rename(run.logs / "7_0")
    run.batch_log("7").rename(run.batch_log("7_0"))
    run.events.write_text(run.events.read_text().replace('"job": "7"', '"job": "7_0"'))
    run.path.rename(sweep.path / "lr=1")
    done = logs("sweep/lr=1", "--errors")
    assert done.stderr.strip().endswith(b"type: slurmddp logs sweep/lr=1 --errors -n 100"), done.stderr


def test_the_error_lines_of_a_run_have_the_programs_own_frames_of_the_first_failure_alone(logs, run):
    """All ranks of a batch script fail alike, and print into one file."""
    frames = [f'  File "train.py", line {line}, in f' for line in (9, 7)]
    library = '  File "/env/site-packages/torch/nn.py", line 1, in forward'
    one = ["Traceback (most recent call last):", frames[0], "    g()", library, frames[1], "ValueError: boom"]
    run.batch_log("7").write_text("\n".join([*one, *one, *one, ""]))
    for rank in range(3):
        run.rank_log("7", "0.0", rank).unlink(missing_ok=True)
        run.rank_record("7", "0.0", rank).write_text(f"77 rank {rank} on n1: ValueError: boom\n")
    shown = [line.partition(b" | ")[2].decode() for line in logs("--errors").stdout.splitlines()]
    assert shown == [one[0], frames[0], frames[1], one[-1]]


def test_of_a_sweep_one_setting_is_to_be_named(logs, run):
    made = RunDir(run.path.parent / "s")
    made.create()
    several = [{"lr": value} for value in ("1", "2", "3")]
    append_record(made.submissions, {"job": "8", "time": "2026-01-02T09:00:00+00:00", "settings": several})
    for words in (["s"], ["s", "-n", "2"], []):
        refused = logs(*words)
        assert (refused.returncode, refused.stdout) == (2, b"")
        assert refused.stderr.startswith(b"Error: 's' is a sweep of 3 settings; name one, as in 's/lr=1'")


def test_json_has_one_object_per_line(logs, run):
    first, second = map(json.loads, logs("--json", "--rank", "0").stdout.splitlines())
    assert first == {
        "schema": 1,
        "time": None,
        "told": None,
        "job_id": "7",
        "attempt": "0.0",
        "source": "rank",
        "rank": 0,
        "host": "n1",
        "file": str(run.rank_log("7", "0.0", 0)),
        "line": 1,
        "text": "a\x1b[1mb\ufffd\r 20%",
    }
    assert second["text"] == "last"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rank", "0", "--all"], "--rank cannot be combined with --all"),
        (["--attempt", "newest"], "--attempt 'newest' is not an attempt; give last, all, or one as in 0.0"),
        (["-f", "--attempt", "0.0"], "--follow continues from the newest attempt"),
        (["nix"], "'nix' is not a job id, nor a submitted run in jobs"),
    ],
)
def test_contradicting_options_are_refused(logs, words, said):
    done = logs(*words)
    assert (done.returncode, done.stdout) == (2, b"") and done.stderr.decode().startswith(f"Error: {said}")


def test_a_huge_number_of_last_lines_means_all_lines(logs):
    assert logs("-n", "9" * 20).stdout == logs().stdout != b""


def test_a_job_that_has_printed_nothing_is_waited_for_until_it_has_ended(logs, run):
    append_record(run.submissions, {"job": "8", "time": "2026-01-01T09:00:00+00:00"})
    done = logs("8")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"job 8 has no output in jobs/r/logs yet; to wait for more, type: slurmddp logs -f 8\n"
    said = "rank 3 of job 8 has no output in jobs/r/logs yet; to wait for more, type: slurmddp logs -f 8 --rank 3\n"
    assert logs("8", "--rank", "3").stderr.decode() == said
    append_record(run.events, {**HEAD, "event": "job_end", "rank": None, "status": 0})
    shutil.rmtree(run.logs)
    assert logs("7").stderr == b"job 7, which is COMPLETED, has no output in jobs/r/logs\n"


def test_a_closed_pipe_ends_it_without_a_message(run):
    run.rank_log("7", "0.0", 0).write_bytes(b"x\n" * 10**6)
    with subprocess.Popen(WORDS, cwd=run.path.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_on_a_terminal_control_characters_are_left_out(run):
    status, seen = on_a_terminal(*WORDS, "--all", cwd=run.path.parent.parent)
    assert status == 0
    assert not re.search(rb"[\x00-\x09\x0b\x0c\x0e-\x1f\xff]", seen)
    assert b"rank 0 n1 |  20%\r\n" in seen and b"rank 1 n2 | fine\r\n" in seen


def test_a_job_whose_id_slurm_gave_to_another_job_is_not_followed(logs, run, tmp_path, monkeypatch):
    """A stand-in for squeue shows a job 7 of a reinstalled cluster, which never ends."""
    append_record(run.events, {**HEAD, "event": "job_end", "status": 77, "reason": "boom"})
    row = "slurmddp|id=7|state=RUNNING|submit=2026-02-01T00:00:00|reason=None|name=other"
    for name, text in (("squeue", f"echo '{row}'"), ("scontrol", "exit 1"), ("sacct", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = logs("-f", "7")
    assert (done.returncode, done.stderr) == (0, b"job 7 is FAILED\n")
    assert BEGINS in done.stdout


TRAINING = """
import os, sys, time
from pathlib import Path
rank, attempt = os.environ["RANK"], os.environ["SLURMDDP_ATTEMPT"]
print(f"rank {rank} in {attempt}", flush=True)
while not Path("followed").exists():
    time.sleep(0.05)
time.sleep(1)
if attempt == "0.0":
    os.kill(os.getpid(), 9)
"""


def test_follow_continues_through_a_restart_to_the_end_of_the_runs_last_job(slurm_env, tmp_path):
    """On the sandbox: the first attempt is killed, the second succeeds; then the next job of the run begins."""
    (tmp_path / "train.py").write_text(TRAINING)
    cli = [sys.executable, "-m", "slurmddp"]
    options = ["--ntasks-per-node", "1", "-c", "1", "train.py"]
    subprocess.run(
        [*cli, "submit", "--chain", "1", *options], cwd=tmp_path, env=slurm_env, check=True, capture_output=True
    )
    shown, said = tmp_path / "shown", tmp_path / "said"
    with shown.open("w") as output, said.open("w") as messages:
        words = [*cli, "logs", "-f", "--all", "train"]
        following = subprocess.Popen(words, cwd=tmp_path, env=slurm_env, stdout=output, stderr=messages)
    until(lambda: "rank 0 in 0.0" in shown.read_text(), 120, said.read_text)
    (tmp_path / "followed").touch()
    assert following.wait(300) == 0, said.read_text()
    own = [line.partition(" | ") for line in shown.read_text().splitlines() if re.search(r"\| rank \d in", line)]
    assert [text for _, _, text in own] == ["rank 0 in 0.0", "rank 0 in 0.1", *["rank 0 in 0.0", "rank 0 in 0.1"]]
    assert all(label.startswith(text[-3:] + " " + text[:6]) for label, _, text in own)
    assert "ended with status 0: done" in shown.read_text()
    assert len(re.findall("^the run continues in job", said.read_text(), re.MULTILINE)) == 1
    assert "is COMPLETED" in said.read_text().splitlines()[-1]


def test_a_job_of_no_run_is_one_line_that_says_where_its_output_is(tmp_path):
    (tmp_path / "jobs").mkdir()
    done = subprocess.run([*WORDS, "99999999"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    said = "job 99999999 is of no run in jobs; its output is in the file that `scontrol show job 99999999` names"
    assert done.stderr == f"Error: {said}; of an array, name a task, as in 99999999_0\n"


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (77, "FAILED")])
def test_a_job_that_has_ended_by_its_files_is_not_followed_where_slurm_does_not_answer(
    logs, run, status, state, monkeypatch
):
    for event in ("attempt_end", "job_end"):
        append_record(run.events, {**HEAD, "time": 2.0, "event": event, "status": status, "reason": "x"})
    monkeypatch.setenv("PATH", "/nowhere")
    done = logs("-f")
    assert (done.returncode, done.stderr) == (0, f"job 7 is {state}\n".encode())
