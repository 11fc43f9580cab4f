"""Writes the table of public programs in docs/frameworks.md from the results of their tests.

make frameworks        # it calls this file at its end
"""

import re
import sys
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET

from public_programs import PROGRAMS

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
COLUMNS = {
    "as torchrun": "test_it_computes_what_torchrun_computes[{}]",
    "preempted": "test_it_goes_on[preempted-{}]",
    "kill -9 of a rank": "test_it_goes_on[killed-{}]",
    "time limit": "test_it_goes_on[time limit-{}]",
}
PACKAGES = ("torch", "accelerate", "deepspeed", "pytorch-ignite")


def make_table(results: ET.Element) -> str:
    """Return the table, below a line that says when and with which versions."""
    cases = {case.get("name"): case for case in results.iter("testcase")}
    day = next(results.iter("testsuite")).get("timestamp", "")[:10]
    rows = [["program", "commit", *COLUMNS], ["---"] * (len(COLUMNS) + 2)]
    for program in PROGRAMS:
        cells = [summarize(cases.get(pattern.format(program.name))) for pattern in COLUMNS.values()]
        rows.append([f"[{program.name}]({program.repository})", f"`{program.commit[:10]}`", *cells])
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"Results of {day}, with {versions}:\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def summarize(case: ET.Element | None) -> str:
    """Return what one test found."""
    if case is None:
        return "not run"
    if {child.tag for child in case} & {"failure", "error", "skipped"}:
        return "failed"
    return next((str(one.get("value")) for one in case.iter("property")), "the same")


if __name__ == "__main__":
    table = make_table(ET.parse(sys.argv[1]).getroot())  # noqa: S314 - our own tests wrote it
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"(?s)Results of .*?\n\n\|.*?\n(?=\n|\Z)", lambda _: table, text, count=1))
