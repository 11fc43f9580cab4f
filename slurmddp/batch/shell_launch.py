"""Starts the ranks by a function of the user's own script: orders to its shell, which answers with the status.

The shell's side is `slurmddp_run` in templates/own_script.sh.j2. An order is one line of shell on standard output: the
variables of a start, or `exit`. The answer is a line on standard input: the launch's status, and 1 if the script has
sent a signal to the launch.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from slurmddp import variables
from slurmddp.attach import attach_variables
from slurmddp.exit_codes import DONE, STOPPED

_PACKAGE: Final = Path(__file__).parents[1]
_BY_SIGNAL: Final = 128
_FAILED_BY_SIGNAL: Final = 127


class ShellLaunch:
    """The launch of a user's own script."""

    def __init__(self, orders: BinaryIO, answers: BinaryIO, say: Callable[[str], None]) -> None:
        """Take the streams to the shell and from it."""
        self._orders, self._answers, self._say = orders, answers, say
        self.status = 0
        """The status of the last start."""

    def __call__(self, environ: Mapping[str, str]) -> int:
        """Run the ranks to their end with the variables that differ from those of the shell; return the status.

        A launch that ended by a signal of the script itself has failed: it is not started again. Ends this process when
        the shell has ended.
        """
        self._order(format_start({**environ, **attach_variables(environ, _PACKAGE)}, os.environ))
        status, _, told = self._answers.readline().strip().partition(b" ")
        if not status.isdigit():
            self._say("the shell of the batch script has ended; nothing more is started")
            raise SystemExit(STOPPED)
        self.status = int(status)
        if told == b"1" and self.status >= _BY_SIGNAL:
            self._say(f"the script itself has sent a signal to the launch, which ended with status {self.status}")
            return _FAILED_BY_SIGNAL
        return self.status

    def end(self, status: int) -> int:
        """Let the script go on: with 0 when the training is done, else with the status of the launch. Return 0."""
        self._order(f"exit {status if status == DONE else self.status or status}")
        return 0

    def _order(self, line: str) -> None:
        self._orders.write(os.fsencode(line) + b"\n")
        self._orders.flush()


def format_start(environ: Mapping[str, str], shell: Mapping[str, str]) -> str:
    """Return the line that brings these variables into a shell that has others; one with a newline is left out."""
    stale = sorted(name for name in variables.OF_AN_ATTEMPT if name not in environ)
    changed = {name: value for name, value in environ.items() if shell.get(name) != value and "\n" not in value}
    words = [f"{name}={shlex.quote(value)}" for name, value in changed.items()]
    return f"unset {' '.join(stale)}; export {' '.join(words)}"
