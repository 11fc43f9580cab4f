"""The catalogue of failures: what is recognised, as data. One module for each kind."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from slurmddp.diagnose.catalogue import (
    consequences,
    devices,
    files,
    general,
    memory,
    program,
    rendezvous,
    slurm,
    training,
)
from slurmddp.diagnose.model import Place, Rule

TOPICS: Final[Mapping[str, tuple[Rule, ...]]] = {
    "The program": program.RULES,
    "Ranks that do not meet": rendezvous.RULES,
    "Training": training.RULES,
    "Memory": memory.RULES,
    "GPUs": devices.RULES,
    "Files": files.RULES,
    "Slurm and the batch script": slurm.RULES,
    "What follows from something else": consequences.RULES,
    "Anything else": general.RULES,
}
"""By what they are about, in the order in which they are tried."""

RULES: Final = tuple(rule for rules in TOPICS.values() for rule in rules)


WORDS: Final = (
    "--module|abort|broken pipe|belongs to|bootstrap|cancel|cannot|can't|child|claimed|closed|container|cuda device|"
    "did not arrive|disagree|does not see|ended with|error|exceeded|exit|fail|fallen|gives up|interface|is taken by|"
    "killed|lost|master_addr|must be set|mutually|nccl|no cuda|no module|no route|no space|no such|not found|"
    "not started|oom.kill|ordinal|out of memory|peer|permission denied|protocol|quota|reached no|refused|signal|"
    "sigkill|sigterm|stale|terminat|time limit|timed out|timeout|told to stop|two different|unable|unreachable|xid"
)
"""One of these is in every line that a rule for any line tells of: the rest of a log is passed over quickly."""
_WORTH: Final = re.compile(WORDS)


@lru_cache(maxsize=4096)
def find(text: str, place: Place = "line") -> tuple[Rule, Mapping[str, str]] | None:
    """Return the rule that a line tells of, with what it found there; None for an ordinary line.

    With `exception` the line is the last of an exception, and rules for any line count too.
    """
    if place == "line" and not _WORTH.search(text.lower()):
        return None
    for rule in _rules(place):
        found = rule.found(text)
        if found is not None:
            return rule, found
    return None


@cache
def _rules(place: Place) -> tuple[Rule, ...]:
    """The rules for such a line, the general ones last."""
    meant = [rule for rule in RULES if place == "exception" or rule.place == "line"]
    return tuple(sorted(meant, key=lambda rule: rule.general))
