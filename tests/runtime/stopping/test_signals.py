"""Stop requests are received whatever the main thread does, and answered by the policy of the present phase."""

import signal
import subprocess
import sys

import pytest

HEAD = """
import os, signal, sys, threading, time
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.stopping.policy import Phase
stopping = this_process().begin(read_rank({}))
signals = stopping.signals
def answer(word):
    stopping.enter(Phase.EXECUTABLE, answer_executable=lambda: print(word, signals.cause, flush=True))
def me(number):
    os.kill(os.getpid(), number)
"""


def run(body: str, before: str = "") -> str:
    program = before + HEAD + body
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("notice", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_is_a_notice(notice):
    body = f"answer('heard')\nme(signal.{notice.name})\ntime.sleep(0.3)\nprint(signals.stop_requested)"
    assert run(body) == f"heard {notice.name}\nTrue\n"


def test_it_is_heard_while_the_main_thread_holds_still():
    """A Python handler waits for the main thread, which here is inside one call of C."""
    body = """
import ctypes
answer('heard')
threading.Thread(target=lambda: (time.sleep(0.2), me(signal.SIGUSR2))).start()
libc = ctypes.CDLL(None)
start = time.monotonic()
while (left := 1.0 - (time.monotonic() - start)) > 0: libc.usleep(int(left * 1e6))
print('main')
"""
    assert run(body) == "heard SIGUSR2\nmain\n"


def test_one_given_before_is_acted_on_at_once_and_only_the_first_names_the_cause():
    body = """
me(signal.SIGUSR1); time.sleep(0.2); me(signal.SIGTERM); time.sleep(0.2)
answer('late'); time.sleep(0.3)
"""
    assert run(body) == "late SIGUSR1\n"


def test_a_phase_answers_once_and_the_exit_does_not_answer():
    body = """
answer('one')
me(signal.SIGTERM); time.sleep(0.2); me(signal.SIGTERM); time.sleep(0.2)
answer('two'); time.sleep(0.2)
stopping.enter(Phase.EXIT); me(signal.SIGTERM); time.sleep(0.2)
"""
    assert run(body) == "one SIGTERM\ntwo SIGTERM\n"


def test_the_clock_is_a_notice():
    body = """
answer('heard')
signals.stop_at(time.time() + 0.3); time.sleep(0.1); print('yet', flush=True); time.sleep(0.6)
"""
    assert run(body) == "yet\nheard clock\n"


def test_a_programs_own_handlers_replace_ours_and_our_clock():
    body = """
answer('wrong')
signal.signal(signal.SIGUSR2, lambda *_: print('own', flush=True))
signals.stop_at(time.time() + 0.2)
me(signal.SIGUSR2); time.sleep(0.6)
print(signals.stop_requested)
"""
    assert run(body) == "own\nFalse\n"


@pytest.mark.parametrize("notice", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_program_that_handles_term_alone_is_told_by_term(notice):
    """Lightning's Trainer does, and Slurm's notice before the time limit is another signal."""
    body = f"""
answer('wrong')
signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))
me(signal.{notice.name}); time.sleep(0.6)
print(signals.stop_requested)
"""
    assert run(body) == "own\nFalse\n"


def test_a_program_that_handles_term_alone_is_told_once_however_late_the_handler_runs():
    """The wakeup descriptor brings the signal first, and the handler brings it again."""
    body = """
import ctypes
answer('wrong')
signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))
threading.Thread(target=lambda: (time.sleep(0.2), me(signal.SIGUSR2))).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
ctypes.CDLL(None).usleep(600_000)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2, signal.SIGTERM])
time.sleep(0.6)
print(signals.stop_requested)
"""
    assert run(body) == "own\nFalse\n"


def test_a_program_that_ignores_term_is_told_by_the_other_signals():
    body = """
answer('heard')
signal.signal(signal.SIGTERM, signal.SIG_IGN)
me(signal.SIGUSR2); time.sleep(0.3)
"""
    assert run(body) == "heard SIGUSR2\n"


def test_it_is_heard_when_the_program_takes_the_wakeup_descriptor():
    body = """
import socket
mine, theirs = socket.socketpair(); theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno())
answer('heard'); me(signal.SIGTERM); time.sleep(0.3)
"""
    assert run(body) == "heard SIGTERM\n"


def test_a_forked_child_dies_of_term_and_of_nothing_else():
    body = """
child = os.fork()
if child == 0:
    time.sleep(30)
time.sleep(0.2)
for number in (signal.SIGUSR1, signal.SIGUSR2):
    os.kill(child, number)
time.sleep(0.2)
print(os.waitpid(child, os.WNOHANG)[0])
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), signals.stop_requested)
"""
    assert run(body) == "0\n-15 False\n"


def test_a_child_that_is_told_to_end_while_it_is_forked_dies_alone():
    """Until its handlers are reset it has those of its parent, and its parent's wakeup descriptor."""
    body = """
child = os.fork()
if child == 0:
    time.sleep(30)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), signals.stop_requested)
"""
    slow = "import os, time\nos.register_at_fork(after_in_child=lambda: time.sleep(0.5))"
    assert run(body, slow) == "-15 False\n"
