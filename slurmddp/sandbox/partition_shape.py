"""A partition of a sandbox with its own nodes, and its form on the command line. No I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slurmddp.errors import UsageError

_NAME: Final = re.compile(r"(?!default$)[A-Za-z0-9][\w.-]{0,63}", re.ASCII | re.IGNORECASE)
_OWN: Final = re.compile(r"[a-z]+=.*", re.DOTALL)
_OPTION: Final = re.compile(r"[A-Z][A-Za-z]+=[\w.:/+,*()\[\]-]+", re.ASCII)
"""An option of a partition in slurm.conf(5)."""
_GPUS: Final = re.compile(r"(?:([\w.-]+):)?([0-9]{1,4})", re.ASCII)
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "nodes": (0, 200),
    "cpus": (1, 4096),
    "memory": (1, 2**31),
    "gpus": (0, 128),
}
"""The keys that are not Slurm's, with the least and the greatest value."""
_FORM: Final = "use NAME:nodes=1,cpus=40,gpus=a100:8,memory=16000,MaxTime=1:00:00, each part may be left out"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A partition with its own nodes, which are all alike."""

    name: str
    nodes: int = 1
    cpus: int = 16
    memory: int = 16000
    """MB a node."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Each type of GPU of a node (empty for no type), and the number of GPUs."""
    options: tuple[tuple[str, str], ...] = ()
    """Other options of the partition, as slurm.conf(5) names them."""

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Read `NAME:nodes=2,cpus=40,gpus=a100:8,memory=64000,MaxTime=1:00:00`; raise UsageError for anything else.

        A key that begins with a capital is an option of slurm.conf(5) for the partition. A GPU's type may be left out;
        several types are written as `a100:4+h100:4`.
        """
        name, _, rest = text.partition(":")
        items = re.split(r",(?=\w+=)", rest) if rest else []
        own = {key: value for key, _, value in (item.partition("=") for item in items if _OWN.fullmatch(item))}
        options = {key: value for key, _, value in (item.partition("=") for item in items if _OPTION.fullmatch(item))}
        if not _NAME.fullmatch(name) or len(own) + len(options) != len(items) or own.keys() - _RANGES:
            raise UsageError(f"--partition {text!a}: {_FORM}")
        return cls(
            name=name,
            nodes=_whole("nodes", own.get("nodes", f"{cls.nodes}"), text),
            cpus=_whole("cpus", own.get("cpus", f"{cls.cpus}"), text),
            memory=_whole("memory", own.get("memory", f"{cls.memory}"), text),
            gpus=_gpus(own.get("gpus", "0"), text),
            options=tuple(options.items()),
        )

    @property
    def gpu_count(self) -> int:
        """The number of GPUs of a node."""
        return sum(count for _, count in self.gpus)


def _gpus(value: str, text: str) -> tuple[tuple[str, int], ...]:
    matches = [_GPUS.fullmatch(item) for item in value.split("+")]
    found = tuple((match[1] or "", int(match[2])) for match in matches if match)
    if len(found) < len(matches):
        raise UsageError(f"--partition {text!a}: gpus={value!a} is not a count, as in 8, a100:8 or a100:4+h100:4")
    _whole("gpus", str(sum(count for _, count in found)), text)
    return tuple((kind, count) for kind, count in found if count)


def _whole(key: str, value: str, text: str) -> int:
    least, most = _RANGES[key]
    if not re.fullmatch("[0-9]{1,10}", value) or not least <= int(value) <= most:
        raise UsageError(f"--partition {text!a}: {key}={value!a}: allowed are {least} to {most}")
    return int(value)
