"""Options of sbatch, srun and other launchers that are not options here, and what to type instead.

They are in foreign_options.toml.
"""

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


_WITH_VALUE: Final = (
    "A=account acctg-freq a=array batch b=begin burst-buffer D=chdir cluster-constraint M=clusters comment "
    "C=constraint S=core-spec cores-per-socket cpu-freq cpus-per-gpu c=cpus-per-task deadline delay-boot "
    "d=dependency m=distribution e=error x=exclude export export-file B=extra-node-info gpu-bind gpu-freq "
    "G=gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint i=input J=job-name "
    "kill-on-invalid-dep L=licenses mail-type mail-user mem mem-bind mem-per-cpu mem-per-gpu network "
    "F=nodefile w=nodelist N=nodes n=ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node "
    "ntasks-per-socket open-mode o=output p=partition power prefer priority profile q=qos reservation "
    "signal sockets-per-node switches thread-spec threads-per-core t=time time-min tmp wckey wrap "
)
_WITHOUT_VALUE: Final = (
    "contiguous exclusive get-user-env H=hold ignore-pbs nice k=no-kill no-requeue O=overcommit "
    "s=oversubscribe parsable propagate Q=quiet reboot requeue spread-job test-only use-min-nodes "
    "v=verbose W=wait wait-all-nodes "
)
SHORT_OF_SBATCH: Final = dict(item.split("=") for item in (_WITH_VALUE + _WITHOUT_VALUE).split() if "=" in item)
"""The long names of sbatch's options, by their letters."""
SWITCHES_OF_SBATCH: Final = tuple(item.rpartition("=")[2] for item in _WITHOUT_VALUE.split())
"""Its options that take no value, or only one behind `=`."""
OF_SBATCH: Final = (*(item.rpartition("=")[2] for item in _WITH_VALUE.split()), *SWITCHES_OF_SBATCH)
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
    found = foreign().get(key)
    if found and (found.instead.split()[0] in known or not found.instead.startswith("--")):
        return found.advice.format(option=option)
    return f"use --sbatch {key}" if key in SWITCHES_OF_SBATCH and "--sbatch" in known else ""


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
