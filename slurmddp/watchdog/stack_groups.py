"""Groups the ranks of a job by where they stand in the program, and shows the groups as lines. Pure.

A rank is what `look` prints of it. A stack is folded to the innermost frame of the program, and the function that this
frame has called: what torch, slurmddp and the standard library do below is left out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurmddp.slurm.hostlist import format_ranges
from slurmddp.text import WIDTH, count, escape_text, format_table

_OURS: Final = re.compile(rf"{re.escape(str(Path(__file__).absolute().parents[1]))}/|.*-packages/slurmddp/")
_LIBRARY: Final = re.compile(r"<frozen |.*/lib(64)?/python3\.\d+/(?!(site|dist)-packages/)|.*-packages/torch/")
_AROUND: Final = {"wrapper", "inner", "decorate_context", "_fn", "_wrapped_call_impl", "_call_impl"}
"""The functions of torch's decorators and hooks, which stand between a call and what is called."""
_CALLED: Final = re.compile(r"([A-Za-z_][\w.]*)\(")
_MOST_CELL: Final = 16

LineOf = Callable[[str, int], str]
"""Returns a line of a file; empty without one."""


class Group(NamedTuple):
    """Ranks that stand at one place."""

    call: str
    """The function that the program has called, as `all_reduce()`; empty where that is not known."""
    place: str
    """`train() at train.py:81`; why there is no stack, where there is none."""
    ranks: Sequence[Mapping[str, Any]]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the ranks."""
        return sorted({one["rank"] for one in self.ranks})

    @property
    def hosts(self) -> list[str]:
        """The nodes of the ranks, in their order."""
        return list(dict.fromkeys(one["host"] for one in self.ranks if one["host"]))


def group_ranks(ranks: Sequence[Mapping[str, Any]], line_of: LineOf) -> list[Group]:
    """Return the ranks by place, the smallest group first."""
    groups: dict[tuple[object, ...], Group] = {}
    for one in sorted(ranks, key=lambda one: int(one["rank"])):
        key = _fold(one["stack"], line_of) if one["stack"] else ((), "", f"no stack: {one['why_no_stack']}")
        group = groups.get(key, Group(*key[1:], []))
        groups[key] = group._replace(ranks=[*group.ranks, one])
    return sorted(groups.values(), key=lambda group: (len(group.ranks), group.numbers))


def _fold(stack: Sequence[Mapping[str, Any]], line_of: LineOf) -> tuple[tuple[object, ...], str, str]:
    """Return what tells a place from others, what is called there, and the place in words."""
    at = find_program([one["file"] for one in stack])
    file, line, function = (stack[at][name] for name in ("file", "line", "function"))
    called = [one["function"] for one in stack[:at] if one["function"] not in _AROUND]
    if not at:  # a function in C has no frame
        names = {name for name in _CALLED.findall(line_of(file, line)) if not iskeyword(name)}
        called = [*names] if len(names) == 1 else []
    return (file, line), f"{called[-1]}()" if called else "", format_place(file, line, function)


def find_program(files: Sequence[str]) -> int:
    """Return the index of the innermost frame of the program in a stack, or else of slurmddp, or else the first one."""
    kinds = [*map(_kind_of, files)]
    return kinds.index(max(kinds))


@cache
def _kind_of(file: str) -> int:
    return 0 if _LIBRARY.match(file) else 1 if _OURS.match(file) else 2


def format_place(file: str, line: int, function: str) -> str:
    """Return a place as `train() at train.py:81`."""
    within = "" if function == "<module>" else f"{function}() at "
    return f"{within}{file.rpartition('/')[2]}:{line}"


def format_groups(groups: Sequence[Group]) -> list[str]:
    """Return a table of 80 columns with a row for each group."""
    rows = []
    for group in groups:
        ranks = _shorten(format_ranges(group.numbers), len(group.ranks), "rank")
        hosts = _shorten(",".join(group.hosts), len(group.hosts), "node")
        rows.append((ranks, hosts, group.call, group.place))
    return format_table(rows, head=("RANKS", "NODES", "IN", "PLACE"), width=WIDTH)


def format_stacks(groups: Sequence[Group], line_of: LineOf) -> Iterator[str]:
    """Yield the whole stack of one rank of each group, the innermost frame last, as in a traceback."""
    for group in groups:
        first = group.ranks[0]
        others = f", as {count(len(group.ranks) - 1, 'other')}" if group.ranks[1:] else ""
        yield from ("", f"rank {first['rank']} on {escape_text(first['host']) or 'no node'}{others}:")
        yield from () if first["stack"] else (f"  {group.place}",)
        for one in reversed(first["stack"] or ()):
            yield escape_text(f'  File "{one["file"]}", line {one["line"]}, in {one["function"]}')
            if line := line_of(one["file"], one["line"]).strip():
                yield f"    {escape_text(line)}"


def _shorten(text: str, number: int, noun: str) -> str:
    return text if len(text) <= _MOST_CELL else count(number, noun)
