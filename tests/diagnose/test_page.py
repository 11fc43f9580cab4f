"""docs/diagnose.md lists what the rules recognise. `python tests/diagnose/test_page.py` writes it."""

import re
from pathlib import Path

from slurmddp.diagnose.catalogue import TOPICS
from slurmddp.diagnose.catalogue.states import END_RULES, STATE_RULES

PAGE = Path(__file__).parents[2] / "docs" / "diagnose.md"
MARK = "<!-- what is recognised: from the rules -->\n"
AGAIN = {True: "yes", False: "no", None: ""}


def table() -> str:
    """What is recognised: a table for each topic, a line for each rule."""
    parts = []
    for topic, rules in TOPICS.items():
        lost = all(rule.role == "consequence" for rule in rules)
        head = (
            "| name | text, as an example |\n|---|---|"
            if lost
            else "| name | text, as an example | again |\n|---|---|---|"
        )
        rows = [_row(rule.key, _code(rule.example), *([] if lost else [AGAIN[rule.again]])) for rule in rules]
        parts.append(f"### {topic}\n\n{head}\n" + "\n".join(rows))
    states = [_row(rule.key, state, AGAIN[rule.again]) for state, rule in STATE_RULES.items()]
    ends = [_row(rule.key, _end(name), AGAIN[rule.again]) for name, rule in END_RULES.items()]
    parts.append(
        "### Slurm's states, and how a rank ended\n\n| name | state or end | again |\n|---|---|---|\n"
        + "\n".join(states + ends)
    )
    return "\n\n".join(parts) + "\n"


def _end(name: str) -> str:
    return {"": "a rank ended with a status", "silent": "a rank left no record"}.get(name, f"a rank ended by {name}")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    short = text if len(text) <= 90 else f"{text[:90].rstrip()}..."
    return f"`{re.sub('`', '', short)}`"


def page() -> str:
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n" + table()


def test_the_page_says_what_the_rules_say():
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    PAGE.write_text(page())
