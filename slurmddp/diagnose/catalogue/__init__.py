"""The catalogue of failures, as data: one module for each topic. To recognise a new failure, add a `Rule` there.

Values that several rules share are given once, by a `partial` at the head of the module.

`states` holds what Slurm's states and the signals that end ranks mean by themselves.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from slurmddp.diagnose.catalogue import (
    collectives,
    consequences,
    data,
    environment,
    files,
    frameworks,
    gpus,
    memory,
    network,
    program,
    rendezvous,
    services,
    slurm,
    submission,
)
from slurmddp.diagnose.rule_types import Place, Rule

TOPICS: Final[Mapping[str, tuple[Rule, ...]]] = {
    "Submission": submission.RULES,
    "Shells, modules and libraries": environment.RULES,
    "GPUs": gpus.RULES,
    "The network between GPUs": network.RULES,
    "Memory": memory.RULES,
    "Hubs and trackers": services.RULES,
    "Data loaders and processes": data.RULES,
    "The program": program.RULES,
    "Ranks that do not meet": rendezvous.RULES,
    "Training": collectives.RULES,
    "Frameworks and launchers": frameworks.RULES,
    "Files": files.RULES,
    "Slurm and the batch script": slurm.RULES,
    "What follows from something else": consequences.RULES,
    "Anything else": program.GENERAL,
}
"""The rules by topic, in the order in which they are tried."""

RULES: Final = tuple(rule for rules in TOPICS.values() for rule in rules)


WORDS: Final = (
    "--module|abort|access fault|allocate resources|ambiguous|an attempt|ancdata|any running|api.key|bad interpreter|"
    "batch script|belongs to|bootstrap|broken pipe|busy|can't|cancel|cannot|chdir|checked in|child|claimed|closed|"
    "conda|configured|connection reset|container|could not|cpu binding|cuda device|cuda_home|device-side|"
    "did not arrive|disagree|does not see|dp world|ended with|entire process|error|exceeded|exception|exit|fail|"
    "fallen|fatal|gives up|illegal|insufficient|interface|invalid|is taken by|killed|lost|master_addr|mismatch|mnnvl|"
    r"module\(s\)|mpi type|must be set|mutually|nccl|neither|no cuda|no kernel image|no module|no route|no space|"
    "no such|not empty|not found|not started|only supports|oom.kill|ordinal|out of memory|peer|permission denied|pmi|"
    "protocol|quota|reached no|refused|sigkill|signal|sigterm|slots|stale|stopping training|stuck|terminat|"
    "time limit|timed out|timeout|told to stop|too old|two different|unable|unavailable|unreachable|unrecognized|"
    "unsupported|xid|zero bytes"
)
"""Every line that a rule for any line matches contains one of these in small letters. Other lines are skipped fast."""
_WORDS_REGEX: Final = re.compile(WORDS)


@lru_cache(maxsize=4096)
def find_rule(text: str, place: Place = "line") -> tuple[Rule, Mapping[str, str]] | None:
    """Return the rule that matches a line, and what its groups matched; None for an ordinary line.

    With the place `exception` the line is the last one of an exception; rules for any line are tried too.
    """
    if place == "line" and not _WORDS_REGEX.search(text.lower()):
        return None
    for rule in _rules_for(place):
        groups = rule.match(text)
        if groups is not None:
            return rule, groups
    return None


@cache
def _rules_for(place: Place) -> tuple[Rule, ...]:
    """Return the rules to try for a line, the general ones last."""
    rules = [rule for rule in RULES if place == "exception" or rule.place == "line"]
    return tuple(sorted(rules, key=lambda rule: rule.general))
