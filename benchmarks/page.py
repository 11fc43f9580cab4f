"""The page of the benchmarks, made of what was measured. Text only."""

from collections.abc import Iterator, Mapping

from results import Part
from rows import Row, span

HEAD = """# Benchmarks

`make bench` measures slurmddp side by side with what else does the same on one machine, and writes this page from
`docs/benchmarks.json`; `make bench ARGS='startup save'` measures some parts and keeps the other rows.

In each round every program has its turn, so that all see the same machine; the figures are medians, with the quartiles
in brackets. A ratio is the median over the rounds of slurmddp's figure divided by the other's: below 1, slurmddp needs
less. Jobs run on the [sandbox](cluster.md), a real Slurm whose nodes share the cores of this machine.

![Ratios of slurmddp's figures to those of the others](benchmarks.svg)

"""
TABLE = "| measured | slurmddp | compared with | its figure | ratio | wanted |\n|---|---|---|---|---|---|\n"


def page(parts: Mapping[str, Part]) -> str:
    """Return the page: what it is, one table, and where it was measured."""
    lines = [line for part in parts.values() for row in part.rows for line in _lines(row)]
    return HEAD + TABLE + "".join(f"{line}\n" for line in lines) + "\n" + _missed(parts) + "".join(_places(parts))


def _lines(row: Row) -> Iterator[str]:
    """Yield a line of the table for each peer of a row; the first has the name and slurmddp's figure."""
    first = (row.name, f"{span(row.ours)} {row.unit}")
    for peer in row.peers or {"": ""}:
        yield _line(*first, *_peer_cells(row, peer))
        first = ("", "")


def _peer_cells(row: Row, peer: str) -> tuple[str, str, str, str]:
    found = row.peers.get(peer, "")
    if not row.ratios(peer) if peer else True:
        return peer, found if isinstance(found, str) else "", "", _wanted(row, peer)
    return peer, f"{span(found)} {row.unit}", span(row.ratios(peer)), _wanted(row, peer)


def _wanted(row: Row, peer: str) -> str:
    """Return the bars that are about a peer; those about slurmddp's own figure stand beside the first peer."""
    is_first = peer == next(iter(row.peers), "")
    bars = [bar for bar in row.bars() if bar.peer == peer or (bar.peer is None and is_first)]
    words = {True: "", False: ": **missed**", None: ": not measured"}
    return "; ".join(_bar_words(bar.text, bar.peer) + words[bar.is_met(row)] for bar in bars)


def _bar_words(text: str, peer: str | None) -> str:
    return text.removesuffix(f" of {peer}")


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _missed(parts: Mapping[str, Part]) -> str:
    missed = [f"- {row.name}: {text}" for part in parts.values() for row in part.rows for text in row.missed()]
    return "\n".join(["Missed:", "", *missed, "", ""]) if missed else "No bar is missed.\n\n"


def _places(parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield a paragraph for each machine and day, with the parts that were measured there."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for name, part in parts.items():
        places.setdefault((part.date, part.machine, part.versions), []).append(name)
    yield "## Where\n"
    for (day, machine, versions), names in places.items():
        yield f"\n{day}: {machine}; {versions}. Parts: {', '.join(names)}.\n"
