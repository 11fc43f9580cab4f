"""Explains why a job waits: the meaning of each of Slurm's reasons, and what to type.

They are in pending_reasons.json, by whether the job can start without help. The names are those of Slurm's
job_state_reason.c, 20.11 to 25.x (https://slurm.schedmd.com/job_reason_codes.html); one with blanks is the start of a
sentence. JOBID stands for the id of the job, and a name in braces for a phrase.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

Outlook = Literal["yes", "perhaps", "no"]

JOB_ID: Final = "JOBID"
"""The placeholder of the job id in a command."""
_TABLES: Final[Mapping[str, Mapping[str, Any]]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())


class Explanation(NamedTuple):
    """One reason why a job does not run."""

    by_itself: Outlook
    """Whether the job can start without help."""
    meaning: str
    advice: str = ""
    """What to type or whom to ask; empty when the user can only wait."""


def explain(reason: str, job_id: str = JOB_ID) -> Explanation:
    """Return the meaning of a reason and the advice; an unknown reason is its own meaning."""
    text = reason.strip("() ").replace("_", " ")
    name = text.partition(",")[0].strip()
    reasons = _reasons()
    known = (
        next((reasons[start] for start in reasons if " " in start and text.lower().startswith(start)), None)
        or reasons.get(name.lower())
        or _explain_limit(name)
        or Explanation("perhaps", text)
    )
    return known._replace(advice=known.advice.replace(JOB_ID, job_id))


def warning(reason: str, job_id: str) -> str:
    """Return meaning and advice of a reason when the job may not start by itself; else an empty text."""
    why = explain(reason, job_id)
    return f"{why.meaning}; {why.advice}" if why.advice and why.by_itself != "yes" else ""


def never_starts(reason: str) -> bool:
    """Return whether a job that waits for this reason only waits until it is cancelled or changed; not one on hold."""
    why = explain(reason)
    return why.by_itself == "no" and "scontrol release" not in why.advice


@cache
def _reasons() -> Mapping[str, Explanation]:
    """Return the reasons by name, in small letters."""
    return {
        name.lower(): Explanation(by_itself, meaning, "".join(advice).format_map(_TABLES["phrases"]))
        for by_itself in get_args(Outlook)
        for name, (meaning, *advice) in _TABLES[by_itself].items()
    }


def _explain_limit(name: str) -> "Explanation | None":
    """Explain a limit of the accounting by its name, which says whose it is and whether it is one of a single job."""
    if not re.fullmatch(r"(QOS|Assoc)?(Grp|Max|Min)\w+", name):
        return None
    whose, phrases = "its QOS" if name.startswith("QOS") else "your account", _TABLES["phrases"]
    if re.search(r"^(QOS|Assoc)?Min|PerJob|PerNode", name):
        return Explanation("no", f"it asks for more or less than {whose} allows ({name})", phrases["within"])
    return Explanation("perhaps", f"a limit of {whose} is reached ({name})", phrases["reached"])
