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


BODIES = {
    "one given before is acted on at once, and only the first names the cause": (
        "late SIGUSR1\n",
        """
me(signal.SIGUSR1); time.sleep(0.2); me(signal.SIGTERM); time.sleep(0.2)
answer('late'); time.sleep(0.3)
""",
    ),
    "while the main thread is inside one call of C, for which a Python handler waits": (
        "heard SIGUSR2\nmain\n",
        """
import ctypes
answer('heard')
threading.Thread(target=lambda: (time.sleep(0.2), me(signal.SIGUSR2))).start()
libc = ctypes.CDLL(None)
start = time.monotonic()
while (left := 1.0 - (time.monotonic() - start)) > 0: libc.usleep(int(left * 1e6))
print('main')
""",
    ),
    "a phase answers once, and the exit does not": (
        "one SIGTERM\ntwo SIGTERM\n",
        """
answer('one')
me(signal.SIGTERM); time.sleep(0.2); me(signal.SIGTERM); time.sleep(0.2)
answer('two'); time.sleep(0.2)
stopping.enter(Phase.EXIT); me(signal.SIGTERM); time.sleep(0.2)
""",
    ),
    "the clock": (
        "yet\nheard clock\n",
        """
answer('heard')
signals.stop_at(time.time() + 0.3); time.sleep(0.1); print('yet', flush=True); time.sleep(0.6)
""",
    ),
    "the clock, which is set back meanwhile": (
        "heard clock\n",
        """
answer('heard')
now = time.time
signals.stop_at(now() + 0.2); time.time = lambda: now() - 3600; time.sleep(0.6)
""",
    ),
    "a program's own handler replaces ours, and our clock": (
        "own\nFalse\n",
        """
answer('wrong')
signal.signal(signal.SIGUSR2, lambda *_: print('own', flush=True))
signals.stop_at(time.time() + 0.2)
me(signal.SIGUSR2); time.sleep(0.6)
print(signals.stop_requested)
""",
    ),
    "a program that handles TERM alone, as Lightning's Trainer, is told by TERM": (
        "own\nown\nFalse\n",
        """
answer('wrong')
signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))
me(signal.SIGUSR1); time.sleep(0.4); me(signal.SIGUSR2); time.sleep(0.6)
print(signals.stop_requested)
""",
    ),
    "a program that handles USR1 alone is told by USR1": (
        "own\nown\nFalse\n",
        """
answer('wrong')
signal.signal(signal.SIGUSR1, lambda *_: print('own', flush=True))
me(signal.SIGTERM); time.sleep(0.4); me(signal.SIGUSR2); time.sleep(0.6)
print(signals.stop_requested)
""",
    ),
    "once, however late its handler runs: the descriptor brings the signal first, and the handler again": (
        "own\nFalse\n",
        """
import ctypes
answer('wrong')
signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))
threading.Thread(target=lambda: (time.sleep(0.2), me(signal.SIGUSR2))).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
ctypes.CDLL(None).usleep(600_000)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2, signal.SIGTERM])
time.sleep(0.6)
print(signals.stop_requested)
""",
    ),
    "a program that ignores TERM is told by the other signals": (
        "heard SIGUSR2\n",
        """
answer('heard')
signal.signal(signal.SIGTERM, signal.SIG_IGN)
me(signal.SIGUSR2); time.sleep(0.3)
""",
    ),
    "when the program takes the wakeup descriptor": (
        "heard SIGTERM\n",
        """
import socket
mine, theirs = socket.socketpair(); theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno())
answer('heard'); me(signal.SIGTERM); time.sleep(0.3)
""",
    ),
    "a forked child dies of TERM and of nothing else": (
        "0\n-15 False\n",
        """
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
""",
    ),
}
BODIES |= {
    number.name: (
        f"heard {number.name}\nTrue\n",
        f"answer('heard')\nme(signal.{number.name})\ntime.sleep(0.3)\nprint(signals.stop_requested)",
    )
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
}


@pytest.mark.parametrize("name", BODIES)
def test_a_signal_is_heard(name):
    printed, body = BODIES[name]
    assert run(body) == printed


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
