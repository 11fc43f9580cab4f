"""The terminal: full-screen output, key input, and restoring it at the end. Knows nothing of jobs."""

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.text import Text

_ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
_END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEYS: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
}
_WORD: Final = re.compile(rb"\x1b[\[O][0-?]*[ -/]*[@-~]|\x1b[\[O]|.", re.DOTALL)
"""A control sequence (ECMA-48), the beginning of one, or any other byte."""


class Terminal:
    """A terminal in full-screen mode."""

    def __init__(self) -> None:
        from rich.console import Console

        self.signal = 0
        """The signal that ends the program, also SIGHUP if the terminal is gone; 0 if there was none."""
        self._suspend_requested = False
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._wake_reader, self._wake_writer = os.pipe()
        self._console = Console(highlight=False)
        self._frame = ""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 if unknown. COLUMNS and LINES are not read: they do not follow the window."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def show(self, lines: Sequence["Text"]) -> None:
        """Draw a frame; nothing is written if it has not changed."""
        try:
            frame = "\x1b[H" + "\r\n".join(self._render(line) + "\x1b[K" for line in lines)
        except OSError:  # rich flushes the stream, and the terminal is gone
            self.signal = self.signal or signal.SIGHUP
            return
        if frame != self._frame:
            self._frame = frame
            self._write(frame)

    def _render(self, line: "Text") -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get()

    def wake(self) -> None:
        """Make `keys` return; may be called from any thread."""
        with suppress(BlockingIOError):  # the pipe is full, so `keys` returns anyway
            os.write(self._wake_writer, b"\0")

    def keys(self, timeout_s: float) -> list[str]:
        """Wait for keys or the timeout; return the pressed keys by name or character."""
        ready, _, _ = select.select([self._in, self._wake_reader], [], [], timeout_s)
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if self._suspend_requested:
            self._suspend()
        return _key_names(self._read()) if self._in in ready else []

    def _read(self) -> bytes:
        try:
            pressed = os.read(self._in, 4096)
        except OSError:  # the terminal is gone
            pressed = b""
        if not pressed:
            self.signal = self.signal or signal.SIGHUP
        return pressed

    def _write(self, text: str) -> None:
        raw = text.encode(sys.stdout.encoding or "ascii", "replace")
        try:
            while raw:
                raw = raw[os.write(self._out, raw) :]
        except OSError:
            self.signal = self.signal or signal.SIGHUP

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._suspend_requested = True
        elif number in _END_SIGNALS:
            self.signal = number

    def _suspend(self) -> None:
        """Stop the process, as Ctrl-Z asks; return when it is continued."""
        self._suspend_requested = False
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def _enter(self) -> None:
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        self._frame = ""
        self._write(_ENTER_SCREEN)

    def _leave(self) -> None:
        self._write(_LEAVE_SCREEN)
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)

    def __enter__(self) -> Self:
        """Switch to full-screen mode, and install signal handlers."""
        os.set_blocking(self._wake_writer, False)
        self._old_wakeup_fd = signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        numbers = (*_END_SIGNALS, signal.SIGTSTP, signal.SIGWINCH)
        self._handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the screen and the handlers; the pipe stays open, since threads may still call `wake`."""
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup_fd)


def is_screen() -> bool:
    """Return whether stdin and stdout are a terminal that supports full-screen output."""
    both = sys.stdin, sys.stdout
    return all(stream is not None and stream.isatty() for stream in both) and os.environ.get("TERM", "dumb") != "dumb"


def _key_names(pressed: bytes) -> list[str]:
    """Return the names of keys; unknown control sequences are ignored."""
    words = _WORD.findall(pressed)
    return [_KEYS.get(word) or word.decode("ascii", "replace") for word in words if word in _KEYS or len(word) == 1]
