"""Notices are heard whatever the main thread does, and mean what the rank last said they mean."""

import signal
import subprocess
import sys

import pytest

HEAD = """
import os, signal, sys, threading, time
from slurmddp.runtime.stopping.signals import NOTICES
NOTICES.listen()
def said(word):
    return lambda: print(word, NOTICES.cause, flush=True)
def me(number):
    os.kill(os.getpid(), number)
"""


def run(body: str) -> str:
    done = subprocess.run([sys.executable, "-c", HEAD + body], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("notice", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_is_a_notice(notice):
    body = f"NOTICES.then(said('heard'))\nme(signal.{notice.name})\ntime.sleep(0.3)\nprint(NOTICES.given)"
    assert run(body) == f"heard {notice.name}\nTrue\n"


def test_it_is_heard_while_the_main_thread_holds_still():
    """A Python handler waits for the main thread, which here is inside one call of C."""
    body = """
import ctypes
NOTICES.then(said('heard'))
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
NOTICES.then(said('late')); time.sleep(0.3)
"""
    assert run(body) == "late SIGUSR1\n"


def test_an_act_happens_once_and_none_means_nothing():
    body = """
NOTICES.then(said('one'))
me(signal.SIGTERM); time.sleep(0.2); me(signal.SIGTERM); time.sleep(0.2)
NOTICES.then(said('two')); time.sleep(0.2)
NOTICES.then(None); me(signal.SIGTERM); time.sleep(0.2)
"""
    assert run(body) == "one SIGTERM\ntwo SIGTERM\n"


def test_an_act_learns_that_it_was_replaced():
    body = """
def act():
    print('replaced', NOTICES.until_replaced(act, 5))
    with NOTICES.holding(act) as current:
        print('current', current, flush=True)
NOTICES.then(act); me(signal.SIGTERM); time.sleep(0.3)
NOTICES.then(None); time.sleep(0.3)
"""
    assert run(body) == "replaced True\ncurrent False\n"


def test_the_clock_is_a_notice():
    body = """
NOTICES.then(said('heard'))
NOTICES.stop_at(time.time() + 0.3); time.sleep(0.1); print('yet', flush=True); time.sleep(0.6)
"""
    assert run(body) == "yet\nheard clock\n"


def test_a_programs_own_handlers_replace_ours_and_our_clock():
    body = """
NOTICES.then(said('wrong'))
signal.signal(signal.SIGUSR2, lambda *_: print('own', flush=True))
NOTICES.stop_at(time.time() + 0.2)
me(signal.SIGUSR2); time.sleep(0.6)
print(NOTICES.given)
"""
    assert run(body) == "own\nFalse\n"


@pytest.mark.parametrize("notice", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_program_that_handles_term_alone_is_told_by_term(notice):
    """Lightning's Trainer does, and Slurm's notice before the time limit is another signal."""
    body = f"""
NOTICES.then(said('wrong'))
signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))
me(signal.{notice.name}); time.sleep(0.6)
print(NOTICES.given)
"""
    assert run(body) == "own\nFalse\n"


def test_a_program_that_handles_term_alone_is_told_once_however_late_the_handler_runs():
    """It is the wakeup descriptor that brings the signal first, and the handler again."""
    body = """
import ctypes
NOTICES.then(said('wrong'))
signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))
threading.Thread(target=lambda: (time.sleep(0.2), me(signal.SIGUSR2))).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
ctypes.CDLL(None).usleep(600_000)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2, signal.SIGTERM])
time.sleep(0.6)
print(NOTICES.given)
"""
    assert run(body) == "own\nFalse\n"


def test_a_program_that_ignores_term_is_told_by_the_other_signals():
    body = """
NOTICES.then(said('heard'))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
me(signal.SIGUSR2); time.sleep(0.3)
"""
    assert run(body) == "heard SIGUSR2\n"


def test_it_is_heard_when_the_program_takes_the_wakeup_descriptor():
    body = """
import socket
mine, theirs = socket.socketpair(); theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno())
NOTICES.then(said('heard')); me(signal.SIGTERM); time.sleep(0.3)
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
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), NOTICES.given)
"""
    assert run(body) == "0\n-15 False\n"
