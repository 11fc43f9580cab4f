"""The rules of `diagnose`: TOML files of slurmddp beside this module, and those of a site. Reads files.

A file has a topic: a table for each cause, and below it the patterns by which the cause is recognised. The files are
tried in the order of their names, and the causes in their order in a file; those of a site come before ours.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from string import Formatter
from typing import Any, Final, NamedTuple

import msgspec

from slurmddp.config.configuration_files import configuration_folders, read_and_check_owner
from slurmddp.config.toml import describe_place, parse_toml
from slurmddp.diagnose.rule_types import Place, Rule, Trait, compile_set
from slurmddp.errors import UsageError

_FOLDER: Final = Path(__file__).parent
_KIND: Final = "rules file"
_TRIED: Final[Mapping[Place, tuple[Place, ...]]] = {
    "line": ("line",),
    "exception": ("exception", "line"),
    "end": ("exception", "line", "end"),
}


class RuleBook(NamedTuple):
    """All rules."""

    topics: Mapping[str, tuple[Rule, ...]]  # our own by the title of their file, in the order in which they are tried
    site: tuple[Rule, ...] = ()  # those of the user and of the site, which are tried before ours
    ignored: tuple[str, ...] = ()  # which files of the user or the site do not count, and why

    @property
    def own(self) -> tuple[Rule, ...]:
        """Our own rules."""
        return tuple(chain.from_iterable(self.topics.values()))


@cache
def load_rules() -> RuleBook:
    """Return all rules. A broken file of the site is ignored, as one that another user can write to is."""
    own = sorted(_FOLDER.glob("*.toml"))
    topics = dict(parse_rules(path.read_bytes(), describe_place(_KIND, path)) for path in own)
    site: list[Rule] = []
    ignored: list[str] = []
    for path in (path for folder in configuration_folders() for path in sorted(folder.glob("rules/*.toml"))):
        place = describe_place(_KIND, path)
        try:
            raw, why = read_and_check_owner(path)
            site += () if why else parse_rules(raw, place, check=check_rule)[1]
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
        except UsageError as error:
            why = str(error).removeprefix(place).lstrip(":, ")
        if why:
            ignored.append(f"{place} is ignored: {why}")
    return RuleBook(topics, tuple(site), tuple(ignored))


def parse_rules(raw: bytes, place: str, check: Callable[[Rule], None] = lambda _: None) -> tuple[str, tuple[Rule, ...]]:
    """Return the title of a file and its rules. Raises UsageError that names the cause and the pattern."""
    tables = parse_toml(raw, place)
    title = str(tables.pop("title", ""))
    return title, tuple(rule for key, cause in tables.items() for rule in _parse_cause(key, cause, place, check))


def _parse_cause(key: str, cause: Any, place: str, check: Callable[[Rule], None]) -> Iterator[Rule]:
    where = f"{place}, cause {key}"
    try:
        shared = msgspec.convert(cause, dict[str, Any])
        patterns = msgspec.convert(shared.pop("patterns", [{}]), list[dict[str, Any]])
        for number, own in enumerate(patterns, start=1):
            where = f"{place}, cause {key}, pattern {number}"
            check(rule := msgspec.convert({"key": key, **shared, **own}, Rule))
            yield rule
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def check_rule(rule: Rule) -> None:
    """Raise ValueError for a regex that is none or is not in its example, and for an unknown `{name}`."""
    if not rule.regex:
        raise ValueError("it needs a regex")
    if (found := rule.match(rule.example)) is None:
        raise ValueError(f"the regex is not found in its example: {rule.example}")
    filled = {name for _, name, _, _ in Formatter().parse(rule.what) if name is not None}
    if wrong := filled - found.keys():
        raise ValueError(f"what names {{{min(wrong)}}}, which no group of the regex has")


@lru_cache(maxsize=4096)
def find_rule(text: str, place: Place = "line") -> tuple[Rule, Mapping[str, str]] | None:
    """Return the rule that matches a line, and what its groups matched; None for an ordinary line.

    With the place `exception` the line is the last one of an exception; rules for any line are tried too. With `end` it
    is one of the last lines of an output: all rules are tried but those that take any text for an exception.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # Slurm's answers may have bytes that are no text
    rules, patterns = _patterns_for(place)
    matching = dict.fromkeys(rules[number] for number in sorted(patterns.Match(text) or ()))
    return next(((rule, groups) for rule in matching if (groups := rule.match(text)) is not None), None)


@cache
def _patterns_for(place: Place) -> tuple[tuple[Rule, ...], Any]:
    """Return the patterns to try for a line, in one set of RE2, and the rule of each.

    General ones come after the others, and among both those for the end last.
    """
    rules = [rule for rule in (*load_rules().site, *load_rules().own) if rule.regex and rule.place in _TRIED[place]]
    if place == "end":
        rules = [rule for rule in rules if not ("any text" in rule.traits and rule.place == "exception")]
    rules.sort(key=lambda rule: (rule.general, rule.place == "end"))
    found = compile_set(pattern for rule in rules for pattern in rule.patterns)
    return tuple(rule for rule in rules for _ in rule.patterns), found


def find_state_rule(state: str, exit_code: str) -> Rule | None:
    """Return the cause of a job that ended so, `status:signal`; None if the state says nothing by itself."""
    named = (state, f"{state} {exit_code}")
    return next((rule for rule in load_rules().own if rule.state and rule.state in named), None)


@cache
def end_causes() -> Mapping[str, Rule]:
    """Return what the ends of ranks mean: by the signal, `status`, `step`, `silent`: no record, `launcher` in all."""
    return {rule.end: rule for rule in load_rules().own if rule.end}


@cache
def causes_with(trait: Trait) -> frozenset[str]:
    """Return the keys of our causes with a trait."""
    return frozenset(rule.key for rule in load_rules().own if trait in rule.traits)
