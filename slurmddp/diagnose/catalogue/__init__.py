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
    "Anything else": (*program.GENERAL, *program.LAST_WORDS),
}
"""The rules by topic, in the order in which they are tried."""

RULES: Final = tuple(rule for rules in TOPICS.values() for rule in rules)


WORDS: Final = (
    "--module|/dev/|: nan|^call|^socket|abort|access fault|allocate resources|ambiguous|amdgpu|an attempt|ancdata|"
    "any running|api.key|as root|assert|bad interpreter|batch script|belongs to|bootstrap|broken pipe|busy|"
    "c10d store|can't|cancel|cannot|chdir|checked in|child|claimed|closed|code object|column|conda|configured|"
    "connection reset|container|could not|couldn't|cpu binding|credential|cuda device|cuda_home|current node|dead|"
    "denied|device-side|did not arrive|didn't|died|disagree|does not see|dp world|drm:|due to|earlyoom|ended with|"
    "enroot|entire process|error|exceeded|exception|exit|fabric|fail|fallen|fatal|forbidden|fusermount|gcs|"
    "general protection|"
    "gives up|gpu recovery|gpu reset|gsp|hang|heartbeats|hostname|hsa_status|illegal|insufficient|interface|invalid|"
    "is taken by|killed|lagging|lost|master_addr|memory allocation of|memory pressure|message truncated|mismatch|"
    "missed|mnnvl|"
    r"module\(s\)|mpi type|mpi_err|munge|must be set|mutually|namespace|nccl|neither|newuidmap|no cuda|no devices|"
    "no kernel image|no module|no route|no space|no such|node types|not defined in|not empty|not found|not permitted|"
    "not started|nvrm|nvswitch|only supports|oom when|oom.kill|oom[- _]?kill|oom_reaper|oomd|ordinal|orte |"
    "out of memory|overflow!|page fault|peer|pmi|primary job|protocol|prte |publickey|quota|reached no|refused|"
    "remote daemon|"
    "required gpus|revoked|rminitadapter|rock module|rpc|runlimit|segfault|shut down|sigkill|signal|sigterm|slots|"
    "squashfs|squashfuse|ssh: connect|stale|stalled|status code|step for job|stopping training|stuck|subset of ranks|"
    "system not yet|unexpected status|"
    "system_not_ready|terminat|time limit|timed out|timeout|timing out|told to stop|too old|two different|ucx|unable|"
    "unauthorized|unavailable|undefined symbol|unreachable|unrecognized|unsupported|vram|watchdog|xid|zero bytes"
)
"""Every line that a rule for any line matches contains one of these in small letters. Other lines are skipped fast."""
_WORDS_REGEX: Final = re.compile(WORDS)


_TRIED: Final[Mapping[Place, tuple[Place, ...]]] = {
    "line": ("line",),
    "exception": ("exception", "line"),
    "end": ("exception", "line", "end"),
}


@lru_cache(maxsize=4096)
def find_rule(text: str, place: Place = "line") -> tuple[Rule, Mapping[str, str]] | None:
    """Return the rule that matches a line, and what its groups matched; None for an ordinary line.

    With the place `exception` the line is the last one of an exception; rules for any line are tried too. With `end` it
    is one of the last lines of an output: all rules are tried but those that take any text for an exception.
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
    rules = [rule for rule in RULES if rule.place in _TRIED[place] and not (place == "end" and rule in program.GENERAL)]
    return tuple(sorted(rules, key=lambda rule: rule.general))
