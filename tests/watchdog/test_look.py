"""Where a rank stands is seen from outside, whatever it does; and no other process gets the signal."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from polling import until
from users import ALICE, OTHERS, user

from slurmddp.watchdog import look

RANK = """
import ctypes, multiprocessing, os, subprocess, sys, threading, time
from slurmddp.watchdog import look
look.register(job=sys.argv[1], attempt="0.0", rank=int(sys.argv[2]), host="n1")
def wait(seconds=600):
    print("ready", flush=True)
    time.sleep(seconds)
"""
JOB = f"test-{os.getpid()}"


@contextmanager
def rank(code, *, number=0):
    """Run a rank that says when it is ready."""
    words = [sys.executable, "-c", RANK + code, JOB, str(number)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def looked():
    done = subprocess.run(
        [sys.executable, "-m", "slurmddp.watchdog.look", JOB, "0.0"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def functions(found):
    return [frame["function"] for frame in found["stack"]]


def test_ranks_are_found_by_attempt_and_stand_where_their_main_thread_does():
    code = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\ndef naïve(): wait()\nnaïve()"
    with rank(code, number=1) as one, rank("wait()", number=0) as other:
        first, second = looked()
        assert (first["rank"], first["pid"], second["rank"], second["pid"]) == (0, other.pid, 1, one.pid)
        assert functions(second) == ["wait", "naïve", "<module>"]
        assert [second["stack"][0]["file"], second["stack"][0]["line"]] == ["<string>", 7]
        assert (second["state"], second["host"], second["why_no_stack"]) == ("S", "n1", "")
        assert functions(looked()[1]) == ["wait", "naïve", "<module>"], "a second look shows one stack"
        assert look.find_ranks(JOB, "0.1") == []


HELD = "def held():\n  print('ready', flush=True)\n  ctypes.PyDLL(None).sleep(600)\nheld()"


def test_a_rank_shows_its_stack_while_c_code_holds_the_gil():
    with rank(HELD):
        time.sleep(0.2)  # the line is printed just before
        (found,) = looked()
        assert functions(found) == ["held", "<module>"]


def test_what_a_rank_does_goes_on_and_its_system_call_is_restarted():
    code = "read, write = os.pipe()\nprint('ready', flush=True)\nwhile True: os.read(read, 1)"
    with rank(code) as process:
        assert functions(looked()[0]) == ["<module>"]
        assert process.poll() is None


def test_a_rank_that_is_stopped_is_not_asked():
    with rank("wait()") as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: looked()[0]["state"] == "T")
        (found,) = looked()
        assert (found["stack"], found["why_no_stack"]) == (None, "it is stopped by a signal or a debugger")


def test_children_of_a_rank_and_a_file_that_was_closed_are_no_rank():
    code = "if os.fork() == 0: time.sleep(600)\nwait()"
    with rank(code) as process:
        assert [found["pid"] for found in looked()] == [process.pid]
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
    closes = "copy = os.dup(3)\nos.close(3)\nopen('/dev/null')\nwait()"
    with rank(f"assert 'memfd' in os.readlink('/proc/self/fd/3')\n{closes}"):
        assert looked() == []


def test_a_rank_at_work_gets_no_signal():
    """Its frames would change while faulthandler follows them: SIGSEGV. Here the signal ends the process at once."""
    code = "import faulthandler\nfaulthandler.unregister(look.SIGNAL)\n"
    work = "def work(n): return n and work(n - 1)\nprint('ready', flush=True)\nwhile True: work(50)"
    with rank(code + work) as process:
        assert all(functions(looked()[0])[-1] == "<module>" for _ in range(10))
        assert process.poll() is None


def test_a_program_that_takes_the_signal_is_not_killed_by_it():
    with rank("import faulthandler\nfaulthandler.unregister(look.SIGNAL)\n" + HELD) as process:
        time.sleep(0.2)
        begin = time.monotonic()
        (found,) = looked()
        assert (found["why_no_stack"], process.poll()) == ("it does not answer", None)
        assert time.monotonic() - begin < look.ANSWER_LIMIT_S + 5


def test_a_look_that_does_not_end_keeps_another_one_for_its_limit_alone():
    with rank("wait()"):
        (first,), (second,) = look.find_ranks(JOB, "0.0"), look.find_ranks(JOB, "0.0")
        first.ask(time.monotonic() + 3)
        begin = time.monotonic()
        second.ask(begin + 0.3)
        assert second.why_no_stack == "another look at it has not ended"
        assert time.monotonic() - begin < look.ANSWER_LIMIT_S
        os.close(first._file)


def test_a_rank_that_ends_meanwhile_is_said_to_have_ended():
    with rank("wait()") as process:
        (found,) = look.find_ranks(JOB, "0.0")
        process.kill()
        process.wait()
        found.ask(time.monotonic() + 3)
        assert found.answer(time.monotonic() + 3) is None
        assert found.why_no_stack == "it has ended"
        assert found.describe()["state"] == "X"


@pytest.mark.skipif(os.geteuid() != 0, reason="to act as another user takes root")
def test_the_ranks_of_another_user_are_left_alone():
    with rank("wait()") as process:
        with user(ALICE, OTHERS):
            assert look.find_ranks(JOB, "0.0") == []
        assert len(look.find_ranks(JOB, "0.0")) == 1
        assert process.poll() is None


@pytest.mark.parametrize("library", [object(), SimpleNamespace(memfd_create=lambda *_: -1)])
def test_a_system_without_files_in_memory_has_no_stacks_and_no_error(monkeypatch, library):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    look.register(job="none", attempt="0.0")
    assert look.find_ranks("none", "0.0") == []
