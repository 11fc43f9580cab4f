"""torchrun's agent survives a stop signal and passes it on, also one that came before there were ranks."""

import os
import re
import signal
import subprocess
import sys

import pytest
from polling import until
from processes import signals

from slurmddp.runtime.launch.torchrun import list_children

PROGRAM = """
import os, signal
waited = [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
os.write(1, b"ready\\n")
os.write(1, signal.sigwait(waited).name.encode() + b"\\n")
"""
READY_S = 120
COMMAND = [sys.executable, "-P", "-m", "slurmddp.runtime.launch.torchrun", "--standalone", "--local-addr=localhost"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def agent(tmp_path):
    """Return a function that starts an agent of two ranks, each of which waits for a signal."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    started = []

    def start() -> subprocess.Popen:
        command = [*COMMAND, "--nproc-per-node=2", f"--log-dir={tmp_path}", path]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ONE_THREAD))
        return started[-1]

    yield start
    for process in started:
        for pid in (*list_children(process.pid), process.pid) if process.poll() is None else ():
            os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_notice_reaches_the_ranks_and_leaves_the_agent(agent, number):
    process = agent()
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    assert len(list_children(process.pid)) == 2
    process.send_signal(number)
    assert process.stdout.read().count(number.name) == 2
    assert process.wait(READY_S) == 0


def test_a_notice_during_the_agents_imports_is_not_lost(agent):
    process = agent()
    until(lambda: signal.SIGUSR2 in signals(process.pid, "SigBlk"), pause_s=0.005)
    process.send_signal(signal.SIGUSR2)
    lines = process.communicate(timeout=READY_S)[0].splitlines()
    assert "".join(lines).count("SIGUSR2") == 2


def test_a_rank_that_fails_is_one_line_of_the_agents(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)")
    command = [*COMMAND, "--nproc-per-node=2", f"--log-dir={tmp_path}", path]
    done = subprocess.run(command, env=ONE_THREAD, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"torchrun: rank 1 \(pid \d+\) ended with 3, the first to fail\n", done.stderr)


def test_the_agent_ends_with_what_started_it_and_tells_its_ranks(tmp_path):
    """As when the shell of `slurmddp run` is killed: the ranks get the signal, and are not left behind."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    command = [*COMMAND, "--nproc-per-node=1", f"--log-dir={tmp_path}", str(path)]
    starter = f"import subprocess; subprocess.run({command!r})"
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.readline() == "SIGTERM\n"
        assert process.stdout.read() == "", "nobody is left to write"
