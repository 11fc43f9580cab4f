"""What the words of a line say of it: by Slurm, of an end, at the close, as advice, as a warning. Reads the list once.

`line_meanings.toml` is the only list of such words; the rules say of what a line is the cause.
"""

import tomllib
from pathlib import Path
from typing import Final

from slurmddp.diagnose.rule_types import compile_set

SLURM: Final = 1
"""Slurm or slurmddp says it: a fact, which no program outlives."""
SYSTEM: Final = 2
"""Launchers, Slurm and dying programs begin so: no sign that the program goes on."""
CLOSING: Final = 4
"""Launchers, libraries, trackers and batch scripts print it when a program has ended, for whatever reason."""
ADVICE: Final = 8
"""A sentence about what could happen, or of a person about what happened elsewhere."""
FACT: Final = 16
"""It states an error, whatever else it says."""
ENDED: Final = 32
"""It shows that a program ended badly. Without it, a line that only warns explains nothing."""
WARNING: Final = 64
"""Torch, NCCL, trackers and compilers say it before a program fails, or before it tries something else."""
HARMLESS: Final = 128
"""Warnings, source code, command lines of launchers, and notices that something was aborted name no cause."""
_NAMES: Final = {
    "slurm": SLURM, "system": SYSTEM, "closing": CLOSING, "advice": ADVICE, "fact": FACT, "ended": ENDED,
    "warning": WARNING, "harmless": HARMLESS,
}  # fmt: skip
_LISTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["lines"]
_LINES: Final = [(_NAMES[name], one) for table in _LISTS for name in table if name != "by" for one in table[name]]
_SET: Final = compile_set(pattern for _, pattern in _LINES)


def find_meaning(text: str) -> int:
    """Return all that a line means, as bits; 0 for an ordinary line."""
    found = 0
    for number in _SET.Match(text) or ():
        found |= _LINES[number][0]
    return found


def is_prose(text: str) -> bool:
    """Return whether a line is advice, or a person's words, and states no error."""
    return find_meaning(text) & (ADVICE | FACT) == ADVICE
