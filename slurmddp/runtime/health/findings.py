"""The findings about the ranks and nodes of a job: findings.json has the level and the texts of each."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from slurmddp.runs.findings import Finding

_FIELDS: Final = ("host", "rank", "level")
"""Values that are themselves fields of a finding."""


def finding(check: str, case: str, **values: Any) -> Finding:
    """Return the finding of a check in this case, with the values in its texts."""
    texts: dict[str, Any] = {key: text.format_map(values) for key, text in load()[check][case].items()}
    return Finding(check=check, **texts | {key: values[key] for key in _FIELDS if key in values})


@cache
def load() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the whole file, by check and case."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name("findings.json").read_text(encoding="utf-8"))
    return content
