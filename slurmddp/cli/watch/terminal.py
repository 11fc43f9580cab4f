"""The terminal as a screen and a keyboard, and given back as it was. Knows nothing of jobs."""

import os
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

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_LEAVING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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


class Terminal:
    """A terminal whose whole screen is ours."""

    def __init__(self) -> None:
        from rich.console import Console

        self.signal = 0
        """The one that asks us to leave, SIGHUP also for a terminal that is gone; 0 while none has come."""
        self._stops = False
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._woken, self._wakes = os.pipe()
        self._console = Console(highlight=False)
        self._frame = ""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 where the terminal does not say."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    @property
    def has_dots(self) -> bool:
        """Whether it shows more than ASCII."""
        return "utf" in (sys.stdout.encoding or "").lower()

    def show(self, lines: Sequence["Text"]) -> None:
        """Draw a frame; nothing is sent when it is the last one."""
        frame = "\x1b[H" + "\r\n".join(self._drawn(line) + "\x1b[K" for line in lines)
        if frame != self._frame:
            self._frame = frame
            self._write(frame)

    def _drawn(self, line: "Text") -> str:
        with self._console.capture() as drawn:
            self._console.print(line, end="", soft_wrap=True)
        return drawn.get()

    def wake(self) -> None:
        """End a wait for keys; may be called from any thread."""
        with suppress(BlockingIOError):  # it is full: the wait ends anyway
            os.write(self._wakes, b"\0")

    def keys(self, timeout_s: float) -> list[str]:
        """Return the keys that were pressed, by name or character, when there are some or the time is over."""
        ready, _, _ = select.select([self._in, self._woken], [], [], timeout_s)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._stops:
            self._pause()
        return _names(self._read()) if self._in in ready else []

    def _read(self) -> bytes:
        try:
            pressed = os.read(self._in, 4096)
        except OSError:  # how a terminal says that it is gone
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
            self._stops = True
        elif number in _LEAVING:
            self.signal = number

    def _pause(self) -> None:
        """Stop, as Ctrl-Z asks, and come back."""
        self._stops = False
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def _enter(self) -> None:
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        self._frame = ""
        self._write(_ENTER)

    def _leave(self) -> None:
        self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)

    def __enter__(self) -> Self:
        """Take the screen, and hear of signals."""
        os.set_blocking(self._wakes, False)
        self._old_wakes = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        numbers = (*_LEAVING, signal.SIGTSTP, signal.SIGWINCH)
        self._handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the screen back; the pipe stays, since threads may still want to wake us."""
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakes)


def is_screen() -> bool:
    """Tell whether there is a terminal that can be drawn on."""
    both = sys.stdin, sys.stdout
    return all(stream is not None and stream.isatty() for stream in both) and os.environ.get("TERM", "dumb") != "dumb"


def _names(pressed: bytes) -> list[str]:
    """Return the names of keys; an escape sequence that is not known is none."""
    names: list[str] = []
    while pressed:
        known = next((code for code in _KEYS if len(code) > 1 and pressed.startswith(code)), b"")
        if known:
            names.append(_KEYS[known])
            pressed = pressed[len(known) :]
        elif pressed.startswith((b"\x1b[", b"\x1bO")):
            pressed = _after_sequence(pressed)
        else:
            names.append(_KEYS.get(pressed[:1]) or pressed[:1].decode("ascii", "replace"))
            pressed = pressed[1:]
    return names


def _after_sequence(pressed: bytes) -> bytes:
    """Return what follows a control sequence (ECMA-48: it ends with a byte from `@` to `~`)."""
    for index, byte in enumerate(pressed[2:], 2):
        if 0x40 <= byte <= 0x7E:  # noqa: PLR2004 the bounds of the standard
            return pressed[index + 1 :]
    return b""
