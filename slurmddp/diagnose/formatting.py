"""A diagnosis as lines for people, and as a value for JSON. Pure."""

from dataclasses import asdict
from typing import Any, Final

from slurmddp.diagnose.model import NONE, Diagnosis, Line
from slurmddp.text import printable

SHOWN_CHARS: Final = 300
"""Of a line of evidence, and of the cause."""
_AGAIN: Final = {
    True: "starting it again can help",
    False: "starting it again would end the same way",
    None: "",
}
_OPEN: Final = frozenset({NONE, "waiting", "running", "held"})
"""What is no failure."""


def lines(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis for a terminal: the cause first, then what shows it, and at last what to type."""
    told = [_headline(diagnosis), *_where(diagnosis), *map(_evidence, diagnosis.evidence), *_rest(diagnosis)]
    earlier = [f"before, attempt {one.attempt}: {_cause(one)}" for one in diagnosis.before]
    return [printable(line) for line in (*told, *earlier)]


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON has it: every field by its name."""
    return asdict(diagnosis)


def _headline(diagnosis: Diagnosis) -> str:
    name = f"{diagnosis.name} (job {diagnosis.job_id})" if diagnosis.name != diagnosis.job_id else diagnosis.job_id
    return f"{name}{f', {diagnosis.state}' if diagnosis.state else ''}: {_cause(diagnosis)}"


def _cause(diagnosis: Diagnosis) -> str:
    sure = {"certain": "", "likely": ", likely", "unknown": ""}[diagnosis.sure]
    what = _cut(diagnosis.what)
    return what if diagnosis.cause in _OPEN else f"{what} [{diagnosis.cause}{sure}]"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _where(diagnosis: Diagnosis) -> list[str]:
    host = f" on {diagnosis.host}" if diagnosis.host else ""
    attempt = f", attempt {diagnosis.attempt}" if diagnosis.attempt else ""
    if diagnosis.rank is not None:
        return [f"first: rank {diagnosis.rank}{host}{attempt}"]
    return [f"first:{host}{attempt}"] if host else []


def _evidence(line: Line) -> str:
    return f"  {line.place}: {_cut(line.text)}"


def _rest(diagnosis: Diagnosis) -> list[str]:
    again = _AGAIN[diagnosis.again] if diagnosis.cause not in _OPEN else ""
    return [
        *([f"others: {diagnosis.others}"] if diagnosis.others else []),
        *([f"next: {diagnosis.advice}"] if diagnosis.advice else []),
        *([again] if again else []),
    ]
