"""Options of sbatch, srun and other launchers that are not options here, and what to type instead.

They are in foreign_options.toml; the names of sbatch's own are in sbatch_options.json.
"""

import json
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

Meaning = Literal["", "nodes", "ranks_per_node", "ranks", "rendezvous"]


class Foreign(NamedTuple):
    """An option of sbatch or of another launcher."""

    instead: str
    """Our option, or what to do; `{option}` is the option as it was typed."""
    meaning: Meaning = ""
    """What it says behind a launcher; `ranks` is the number on all nodes, `rendezvous` the work of slurmddp."""
    of_sbatch: bool = False
    """Whether sbatch has it, so that `--sbatch` must refuse it."""
    takes_value: bool = True

    @property
    def advice(self) -> str:
        """The whole advice, to be read behind the option's name."""
        return f"use {self.instead}" if self.instead.startswith("--") else self.instead


_OF_SBATCH: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("sbatch_options.json").read_bytes())
SHORT_OF_SBATCH: Final[Mapping[str, str]] = _OF_SBATCH["letters"]
"""The long names of sbatch's options, by their letters."""
SWITCHES_OF_SBATCH: Final = tuple[str, ...](_OF_SBATCH["switches"])
"""Its options that take no value, or only one behind `=`."""
OF_SBATCH: Final = (*tuple[str, ...](_OF_SBATCH["with value"]), *SWITCHES_OF_SBATCH)
"""The long names of its options."""

_NUMBERED: Final = "the ranks are numbered node by node (block); leave it out, and choose the nodes by --nodelist"


@cache
def _table() -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - it is slow to load, and few commands have such an option

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def foreign() -> Mapping[str, Foreign]:
    """Return the options by name, without dashes, spelled with hyphens."""
    rows = [(row["names"], {key: row[key] for key in row if key != "names"}) for row in _table()["launchers"]]
    return {name: Foreign(**more) for names, more in rows for name in names.split()}


def key_of(option: str) -> str:
    """Return the key in `foreign` of an option as it was typed; torchrun and accelerate also take `_` for a hyphen."""
    return option.lstrip("-").replace("_", "-")


def advise(option: str, known: Container[str]) -> str:
    """Return what to type instead of an option; empty if it is not in the table, or if `known` lacks that option."""
    key = key_of(option)
    if not option.startswith("--") and key not in foreign():
        key = SHORT_OF_SBATCH.get(key, key)
    found = foreign().get(key)
    if found and (found.instead.split()[0] in known or not found.instead.startswith("--")):
        return found.advice.format(option=option)
    if f"--{key}" in known:
        return f"use --{key}" if option != f"--{key}" else ""
    if "--sbatch" not in known:
        return ""
    value = "=VALUE" * (key == "nice" or key not in SWITCHES_OF_SBATCH)
    return f"use --sbatch {key}{value}" if key in OF_SBATCH else ""


def refuse_sbatch(key: str, value: str) -> str:
    """Return why `--sbatch` cannot have an option, or an abbreviation of it; empty if it can."""
    for name in OF_SBATCH:
        if name != key and name.replace("-", "") == key.replace("-", ""):
            return f"sbatch has no --{key}; did you mean {name}?"
    if key == "gres" and "gpu" in value:
        return foreign()[key].advice
    if _is_not_by_node(key, value):
        return _NUMBERED
    return next((found.advice for name, found in foreign().items() if found.of_sbatch and name.startswith(key)), "")


def refuse_srun(key: str, value: str) -> str:
    """Return why `--srun` cannot have an option, or an abbreviation of it; empty if it can."""
    if _is_not_by_node(key, value):
        return _NUMBERED
    reasons = _table()["srun"].items()
    return next((why for names, why in reasons for name in names.split() if name.startswith(key)), "")


def _is_not_by_node(key: str, value: str) -> bool:
    """Return whether an option spreads neighbouring ranks over the nodes: arbitrary, cyclic, plane."""
    return len(key) > 1 and "distribution".startswith(key) and value.lower().startswith(("a", "c", "pl"))
