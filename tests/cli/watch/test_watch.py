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

from slurmddp.runs.layout import RunDir, append_record

WORDS = [sys.executable, "-m", "slurmddp", "watch"]
LIMIT_S = 60


class Screen:
    """A terminal on which the program runs; it keeps the output of the program."""

    def __init__(self, cwd, columns=80, lines=24, **environ):
        self.here, self.there = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.there)
        self.seen = b""
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "PATH": "/nowhere",
            "PYTHONFAULTHANDLER": "1",
            **environ,
        }
        self.process = subprocess.Popen(
            WORDS, cwd=cwd, stdin=self.there, stdout=self.there, stderr=subprocess.PIPE, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def resize(self, columns, lines):
        fcntl.ioctl(self.here, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, re.sub(rb"\x1b\[[0-9;]*m", b"", self.seen)):
            assert time.monotonic() < deadline and self.process.poll() is None, self._failure(pattern)
            self._read()
        self.seen = b""

    def _failure(self, pattern):
        """Return what was waited for, what was drawn, and where each thread is."""
        self.process.send_signal(signal.SIGABRT)
        where = self.process.stderr.read().decode()
        return f"{pattern!r} is not in what was drawn:\n{self.seen[-3000:]!r}\n{where}"

    def end(self):
        """Return the status, and what the program said on its standard error."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self._read()
        self._read()
        return self.process.returncode, self.process.stderr.read()

    def _read(self):
        ready, _, _ = select.select([self.here], [], [], 0.1)
        with contextlib.suppress(OSError):
            self.seen += os.read(self.here, 65536) if ready else b""

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
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
    assert screen.seen.endswith(b"\x1b[?25h\x1b[?1049l"), "the cursor is shown, and the first screen is back"
    assert termios.tcgetattr(screen.there) == screen.before, "echo and lines are as they were"


@pytest.mark.parametrize("environ", [{}, {"COLUMNS": "80", "LINES": "24"}], ids=["plain", "exported"])
def test_it_draws_follows_the_size_and_quits_by_q(screen, environ):
    shown = screen(**environ)
    shown.until(
        rb"\x1b\[\?1049h\x1b\[\?25l[\s\S]*17 mnist +UNKNOWN[\s\S]*hello from rank 0[\s\S]*ask Slurm  h help  q quit"
    )
    shown.resize(40, 10)
    os.kill(shown.process.pid, signal.SIGWINCH)
    shown.until(rb"l output  h help  q quit")
    os.write(shown.here, b"h")
    shown.until(rb"choose a job")
    os.write(shown.here, b"\x1b[Bq")
    assert shown.end() == (0, b"")
    assert_restored(shown)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_and_the_terminal_is_restored(screen, number):
    shown = screen()
    shown.until(rb"17 mnist")
    shown.process.send_signal(number)
    assert shown.end() == (128 + number, b"")
    assert_restored(shown)


def test_a_closed_terminal_ends_it_without_a_message(screen):
    shown = screen()
    shown.until(rb"17 mnist")
    os.close(shown.there)
    os.close(shown.here)
    code = shown.process.wait(LIMIT_S)
    assert code == 128 + signal.SIGHUP, shown.process.stderr.read()
    assert shown.process.stderr.read() == b""


def test_ctrl_z_restores_the_terminal_until_it_continues(screen):
    shown = screen()
    shown.until(rb"17 mnist")
    shown.process.send_signal(signal.SIGTSTP)
    shown.until(rb"\x1b\[\?25h\x1b\[\?1049l")
    stat = Path(f"/proc/{shown.process.pid}/stat")
    until(lambda: ") T " in stat.read_text(), LIMIT_S)
    shown.process.send_signal(signal.SIGCONT)
    shown.until(rb"\x1b\[\?1049h[\s\S]*17 mnist")
    os.write(shown.here, b"q")
    assert shown.end() == (0, b"")


@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}])
def test_without_a_terminal_it_says_what_to_type(tmp_path, screen, environ):
    if environ:
        status, said = screen(**environ).end()
    else:
        done = subprocess.run(WORDS, cwd=tmp_path, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        status, said = done.returncode, done.stderr
    assert (status, said) == (
        2,
        b"Error: `slurmddp watch` needs a terminal; without one, type: slurmddp status\n",
    )


def test_an_unknown_run_is_refused_before_the_screen_changes(tmp_path):
    done = subprocess.run([*WORDS, "nix"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(b"Error: 'nix' is no job id, and no run in jobs")
