"""The findings of `slurmddp doctor` before submission, as data: findings.toml has their levels and texts."""

import tomllib
from pathlib import Path
from typing import Final

from slurmddp.runs.findings import Catalogue

CATALOGUE: Final = Catalogue(Path(__file__).with_name("findings.toml"), tomllib.loads)
finding: Final = CATALOGUE.finding
