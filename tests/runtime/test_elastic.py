"""torchrun's agent outlives a notice and sends it on, also one that came before there were ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmddp.runtime.elastic import children

PROGRAM = """
import signal, sys, time
waited = [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
print("ready", flush=True)
print(signal.sigwait(waited).name, flush=True)
"""
READY_S = 30


@pytest.fixture
def agent(tmp_path):
    """Return a function that starts an agent of two ranks, each of which waits for a signal."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    started = []

    def start() -> subprocess.Popen:
        words = ["--standalone", "--nproc-per-node=2", f"--log-dir={tmp_path}"]
        command = [sys.executable, "-P", "-m", "slurmddp.runtime.elastic", *words, path]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_notice_reaches_the_ranks_and_leaves_the_agent(agent, number):
    process = agent()
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    assert len(children(process.pid)) == 2
    process.send_signal(number)
    assert process.stdout.read().count(number.name) == 2
    assert process.wait(READY_S) == 0


def test_a_notice_during_the_agents_imports_is_not_lost(agent):
    process = agent()
    deadline = time.monotonic() + READY_S
    while not _blocks(process.pid, signal.SIGUSR2):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGUSR2)
    lines = process.communicate(timeout=READY_S)[0].splitlines()
    assert "".join(lines).count("SIGUSR2") == 2


def _blocks(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigBlk"))
    return bool(int(mask, 16) >> (number - 1) & 1)
