"""A COMMAND that is an executable: nothing of it is touched, and its rank answers for its end and for notices."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from polling import until

from slurmddp.runs.layout import RunDir
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.stopping.policy import Phase
from slurmddp.runtime.stopping.signals import StopSignals
from slurmddp.runtime.stopping.stopping import Stopping
from slurmddp.worker import run_executable

HOSTILE = ["a b", "x\ny", "", "-m", "--task", "$(id)", "$$", "*", b"\xff".decode("utf-8", "surrogateescape")]
WAITS = "{trap}; echo ready $$; while :; do sleep 0.1; done"


def sh(text: str) -> tuple[str, ...]:
    return ("--no-python", "sh", "-c", text)


def test_words_streams_and_environment_are_its_own(alone):
    text = 'printf "%s|" "$@"; cat; echo "$RANK $WORLD_SIZE $MASTER_ADDR" >&2'
    words = [word.encode("utf-8", "surrogateescape") for word in HOSTILE]
    ended = alone(*sh(text), "sh", *words, stdin=b"from stdin")
    wanted = b"|".join(words) + b"|from stdin"
    assert ended.stdout.encode("utf-8", "surrogateescape") == wanted
    assert (ended.stderr, ended.statuses, ended.record(0)) == ("0 1 127.0.0.1\n", [0], "0 done\n")


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (sh("exit 3"), 77, "exit status 3"),
        (sh("exit 75"), 77, "exit status 75"),
        (sh("kill -9 $$"), 76, "sh was killed by SIGKILL"),
        (sh("kill -50 $$"), 76, "sh was killed by signal 50"),
        (("--no-python", "/no/such"), 77, "COMMAND '/no/such' cannot be started: [Errno 2] No such file or directory:"),
        (("--no-python", "/etc/passwd"), 77, "COMMAND '/etc/passwd' cannot be started: [Errno 13] Permission denied:"),
    ],
)
def test_its_end_is_the_ranks(alone, words, status, reason):
    ended = alone(*words)
    assert ended.statuses == [status]
    assert ended.record(0).startswith(f"{status} rank 0 on n1: {reason}")


def program_of(running, rank: int = 0) -> int:
    """Return the program's process once it waits."""
    log = running.run.rank_log("17", "0.0", rank)
    until(lambda: "ready" in log.read_text())
    return int(log.read_text().split()[1])


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("exits", "record"),
    [
        (75, "75 rank 0 on n1: stop signal received, and ended by itself with status 75"),
        (140, "75 rank 0 on n1: stop signal received, and ended by itself with status 140"),
        (
            0,
            "75 rank 0 on n1: stop signal received (signal); the program handled it by itself and ended",
        ),
        (3, "76 rank 0 on n1: stop signal received, and failed then: exit status 3"),
    ],
)
def test_one_that_catches_the_notice_ends_by_itself(start, exits, record):
    """Slurm's signals reach every process of a step."""
    trap = f"trap 'sleep 0.5; echo saved; exit {exits}' USR2"
    running = start("srun", 1, *sh(WAITS.format(trap=trap)))
    for pid in (program_of(running), running.processes[0].pid):
        os.kill(pid, signal.SIGUSR2)
    ended = running.wait()
    assert ended.record(0).startswith(record)
    assert ended.log(0).endswith("saved\n")


def test_one_that_ends_with_0_before_its_rank_has_seen_the_signal_is_requeued(start):
    running = start("srun", 1, *sh(WAITS.format(trap="trap 'exit 0' USR2")))
    program, rank = program_of(running), running.processes[0]
    rank.send_signal(signal.SIGSTOP)
    os.kill(program, signal.SIGUSR2)
    until(lambda: is_gone(program))
    rank.send_signal(signal.SIGUSR2)
    rank.send_signal(signal.SIGCONT)
    assert running.wait().record(0).startswith("75 rank 0 on n1: stop signal received (")


def test_one_whose_child_a_late_notice_has_ended_comes_back(start):
    """The signal reaches the rank seconds after the program, as on a busy node."""
    running = start("srun", 1, *sh("echo ready $$; sh -c 'kill -USR2 $$'; exit $?"))
    program_of(running)
    time.sleep(2)
    running.processes[0].send_signal(signal.SIGUSR2)
    assert running.wait().record(0).startswith("75 rank 0 on n1: stop signal received (")


@pytest.mark.preloaded
@pytest.mark.parametrize("order", [1, -1])
def test_one_that_does_not_is_over_and_all_come_back(start, order):
    """Whether the signal ends the program or its rank first."""
    running = start("srun", 2, *sh(WAITS.format(trap=":")))
    programs = [program_of(running, rank) for rank in range(2)]
    for pid in [*programs, *(process.pid for process in running.processes)][::order]:
        with contextlib.suppress(ProcessLookupError):  # the program of a rank that had it first
            os.kill(pid, signal.SIGUSR2)
        time.sleep(0.05)
    ended = running.wait()
    assert ended.statuses == [75, 75]
    assert ended.record(0).startswith("75 rank 0 on n1: stop signal received (")
    assert ended.record(1) is None
    until(lambda: all(map(is_gone, programs)))


TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


def test_where_nobody_signals_the_program_its_rank_does(make, tmp_path):
    """Under torchrun, once."""
    run = RunDir(tmp_path / "run")
    program = sh(WAITS.format(trap="trap 'echo heard; exit 75' TERM"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "slurmddp.worker", *program],
        env=make.clean_environment() | make.of_run(run, "torchrun") | TORCHRUN,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=300)[0].count("heard") == 1
    assert process.returncode == 75
    assert run.rank_record("17", "0.0", 0).read_text().startswith("75 rank 0 on ")


@pytest.mark.parametrize(
    ("cgroups", "reached"),
    [
        ("6:freezer:/slurm_n1/uid_0/job_17/step_0\n3:cpuset:/\n0::/\n", False),
        ("0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n", False),
        ("6:freezer:/\n3:cpuset:/slurm_n1/uid_0/job_17/step_0\n0::/\n", True),
        ("0::/user.slice/user-0.slice\n", True),
    ],
    ids=["proctrack on v1", "proctrack on v2", "only task/cgroup on v1", "none"],
)
def test_slurms_signals_reach_it_where_the_step_has_no_cgroup(tmp_path, cgroups, reached):
    file = tmp_path / "cgroup"
    file.write_text(cgroups)
    assert run_executable._gets_signals(file) is reached


def test_a_stop_request_while_it_starts_is_for_the_program(monkeypatch):
    """Its rank is not ended in the milliseconds between the start of the program and the answer that signals it."""
    statuses, phases = [], []
    process_exit = SimpleNamespace(leave=statuses.append)
    stopping = Stopping(read_rank({}), StopSignals(), process_exit)
    stopping.enter(Phase.SCRIPT)
    start = run_executable._start

    def start_and_request(words):
        process = start(words)
        stopping.signals.cause = "SIGTERM"
        stopping.answer()
        return process

    monkeypatch.setattr(run_executable, "_start", start_and_request)
    monkeypatch.setattr(run_executable._Program, "answer_stop", lambda _: phases.append(stopping._phase))
    run_executable.run(["true"], stopping)
    stopping.answer()
    assert (statuses, phases) == ([], [Phase.EXECUTABLE])


def test_it_does_not_outlive_its_rank(start):
    running = start("srun", 1, *sh(WAITS.format(trap=":")))
    pid = program_of(running)
    running.processes[0].kill()
    running.wait()
    until(lambda: is_gone(pid))
