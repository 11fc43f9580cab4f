"""A diagnosis as lines for a terminal. Pure."""

from typing import Final

from slurmddp.diagnose.rule_types import NO_FAILURE, Diagnosis
from slurmddp.text import escape_text

SHOWN_CHARS: Final = 300
"""How much of a line of evidence, and of the cause, is shown."""
SHOWN_END: Final = 100
_AGAIN: Final = {True: ["starting it again can help"], False: ["starting it again would end the same way"], None: []}


def format_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Return the lines: the cause first, then the evidence, and at the end the advice and earlier attempts."""
    same_name = diagnosis.name == diagnosis.job_id
    name = diagnosis.job_id if same_name else f"{diagnosis.name} (job {diagnosis.job_id})"
    state = f", {diagnosis.state}" if diagnosis.state else ""
    rank = f"rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    host = f" on {diagnosis.host}" if diagnosis.host else ""
    attempt = f", attempt {diagnosis.attempt}" if diagnosis.attempt else ""
    lines = [
        f"{name}{state}: {_format_cause(diagnosis)}",
        *([f"first:{rank and f' {rank}'}{host}{attempt}"] if rank or host else []),
        *(f"  {line.place}: {_shorten(line.text)}" for line in diagnosis.evidence),
        *([f"others: {diagnosis.others}"] if diagnosis.others else []),
        *([f"next: {diagnosis.advice}"] if diagnosis.advice else []),
        *(_AGAIN[diagnosis.again] if diagnosis.cause not in NO_FAILURE else []),
        *(f"before, attempt {earlier.attempt}: {_format_cause(earlier)}" for earlier in diagnosis.before),
    ]
    return [escape_text(line) for line in lines]


def _format_cause(diagnosis: Diagnosis) -> str:
    what, likely = _shorten(diagnosis.what), ", likely" if diagnosis.sure == "likely" else ""
    return what if diagnosis.cause in NO_FAILURE else f"{what} [{diagnosis.cause}{likely}]"


def _shorten(text: str) -> str:
    """Return the head and the end of a long text: a message may say at its end what is wrong."""
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - SHOWN_END]} ... {text[-SHOWN_END:]}"
