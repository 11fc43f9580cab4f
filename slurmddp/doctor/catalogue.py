"""The findings of `slurmddp doctor` before submission, as data: findings.toml has their levels and texts."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from slurmddp.runs.findings import Finding

_FILE: Final = Path(__file__).with_name("findings.toml")


def finding(check: str, case: str, **values: object) -> Finding:
    """Return the finding of a check in this case, with the values in its texts."""
    given = load()[check][case].items()
    texts: dict[str, Any] = {key: text.format_map(values) if isinstance(text, str) else text for key, text in given}
    return Finding(check=check, **texts)


@cache
def load() -> Mapping[str, Mapping[str, Any]]:
    """Return the whole file, by check and case."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
