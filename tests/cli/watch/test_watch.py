"""`slurmddp watch` on a terminal: drawing, resizing, every way to end it, the restored terminal. Without Slurm."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from polling import until

from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir

WORDS = [sys.executable, "-m", "slurmddp", "watch"]
LIMIT_S = 60


class Screen:
    """A terminal on which the program runs; it keeps the output of the program."""

    def __init__(self, cwd, words=WORDS, **environ):
        self.here, self.there = pty.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(self.there)
        self.seen = b""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), self.there)
        environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", "PATH": "/nowhere", **environ}
        self.process = subprocess.Popen(words, cwd=cwd, env=environment, start_new_session=True, **streams)

    def resize(self, columns, lines):
        fcntl.ioctl(self.here, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, re.sub(rb"\x1b\[[0-9;]*m", b"", self.seen)):
            assert time.monotonic() < deadline and self.process.poll() is None, (
                f"{pattern!r} is not in {self.seen[-3000:]!r}"
            )
            self._read()
        self.seen = b""

    def end(self):
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self._read()
        self._read()
        return self.process.returncode

    def _read(self):
        ready, _, _ = select.select([self.here], [], [], 0.1)
        with contextlib.suppress(OSError):
            self.seen += os.read(self.here, 65536) if ready else b""

    def close(self):
        self.process.kill()
        self.process.wait()
        for descriptor in (self.here, self.there):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def screen(tmp_path):
    run = RunDir(tmp_path / "jobs" / "mnist")
    run.create()
    append_record(run.submissions, {"job": "17", "time": "2026-01-01T09:00:00+00:00"})
    run.attempt("17", "0.0").mkdir(parents=True)
    run.rank_log("17", "0.0", 0).write_text("hello from rank 0\n")
    made = []

    def make(**options):
        made.append(Screen(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def assert_restored(screen):
    """The first screen is back, the cursor is shown, echo and lines are as they were."""
    assert b"\x1b[?1049l\x1b[?25h" in screen.seen and termios.tcgetattr(screen.there) == screen.before


@pytest.mark.parametrize("environ", [{}, {"COLUMNS": "80", "LINES": "24"}], ids=["plain", "exported"])
def test_it_draws_follows_the_size_and_quits_by_q(screen, environ):
    shown = screen(**environ)
    shown.until(rb"\x1b\[\?1049h[\s\S]*hello from rank 0")
    shown.resize(70, 10)
    os.kill(shown.process.pid, signal.SIGWINCH)
    shown.until(rb"\x1b\[10;\d+H[^\x1b]*Ask Slurm|q Quit[^\x1b]*\? Help")
    os.write(shown.here, b"q")
    assert shown.end() == 0
    assert_restored(shown)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_and_the_terminal_is_restored(screen, number):
    shown = screen()
    shown.until(rb"hello from rank 0")
    shown.process.send_signal(number)
    assert shown.end() == 128 + number
    assert_restored(shown)


def test_ctrl_c_ends_it_also_while_slurm_does_not_answer(screen, tmp_path):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    scontrol.chmod(0o755)
    shown = screen(PATH=str(tmp_path))
    shown.until(rb"asking Slurm")
    began = time.monotonic()
    os.write(shown.here, b"\x03")
    assert shown.end() == 130 and time.monotonic() - began < 20
    assert_restored(shown)


def test_a_closed_terminal_ends_it(screen):
    shown = screen()
    shown.until(rb"hello from rank 0")
    os.close(shown.there)
    os.close(shown.here)
    assert shown.process.wait(LIMIT_S) == 128 + signal.SIGHUP


def test_ctrl_z_restores_the_terminal_until_it_continues(screen):
    shown = screen()
    shown.until(rb"hello from rank 0")
    os.write(shown.here, b"\x1a")
    shown.until(rb"\x1b\[\?1049l\x1b\[\?25h")
    stat = Path(f"/proc/{shown.process.pid}/stat")
    until(lambda: ") T " in stat.read_text(), LIMIT_S)
    shown.process.send_signal(signal.SIGCONT)
    shown.until(rb"\x1b\[\?1049h[\s\S]*hello from rank 0")
    os.write(shown.here, b"q")
    assert shown.end() == 0


def test_a_terminal_without_utf_8_shows_question_marks(screen):
    shown = screen(PYTHONIOENCODING="ascii")
    shown.until(rb"\?17 mnist, rank 0 and the batch script\?[\s\S]*hello from rank 0")
    os.write(shown.here, b"q")
    assert shown.end() == 0


def test_a_dumb_terminal_and_none_are_told_what_to_type(tmp_path, screen):
    advice = b"Error: `slurmddp watch` needs a terminal; without one, type: slurmddp status\n"
    done = subprocess.run(WORDS, cwd=tmp_path, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, advice)
    shown = screen(TERM="dumb")
    assert shown.end() == 2 and shown.seen.replace(b"\r", b"") == advice


@pytest.mark.parametrize("package", ["textual", "textual_plotext"])
def test_without_the_extra_it_says_what_to_install(screen, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None; from slurmddp.cli import main; sys.argv[1:] = ['watch']; main()"
    )
    shown = screen(words=[sys.executable, "-c", code])
    assert shown.end() == 1
    assert shown.seen.startswith(b"Error: `slurmddp watch` needs") and b"pip install 'slurmddp[watch]'" in shown.seen


def test_an_unknown_run_is_refused_before_the_screen_changes(tmp_path):
    done = subprocess.run([*WORDS, "nix"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(b"Error: 'nix' is not a job id, nor a submitted run in jobs")
