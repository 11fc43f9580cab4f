"""What the words of a line say of it: by Slurm, of an end, at the close, as advice, as a warning. Reads the list once.

`line_meanings.toml` is the only list of such words, and says what each meaning is; the rules say of what a line is the
cause.
"""

import tomllib
from pathlib import Path
from typing import Final

from slurmddp.diagnose.rule_types import compile_set

_NAMES: Final = ("slurm", "system", "closing", "advice", "fact", "ended", "warning", "harmless")
SLURM, SYSTEM, CLOSING, ADVICE, FACT, ENDED, WARNING, HARMLESS = (1 << bit for bit in range(len(_NAMES)))
_LISTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["lines"]
_LINES: Final = [
    (1 << _NAMES.index(name), one) for table in _LISTS for name in table if name != "by" for one in table[name]
]
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
