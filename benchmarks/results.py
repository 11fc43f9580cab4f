"""What was measured, and on which machine: read from docs/benchmarks.json and written to it. Files."""

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from programs import PEERS_PYTHON, ROOT, run
from rows import Row

RESULTS = ROOT / "docs" / "benchmarks.json"
OWN_PACKAGES = ("slurmddp", "torch", "lightning", "accelerate")
PEER_PACKAGES = ("torch", "submitit", "torchx")


@dataclass(frozen=True, kw_only=True)
class Part:
    """The rows of one benchmark."""

    rows: tuple[Row, ...]
    date: str
    machine: str
    versions: str


def measured_now(rows: Iterable[Row]) -> Part:
    """Return rows that were measured today on this machine."""
    return Part(rows=tuple(rows), date=date.today().isoformat(), machine=_machine(), versions=_versions())  # noqa: DTZ011


def read(path: Path = RESULTS) -> dict[str, Part]:
    """Return the parts that were measured before."""
    if not path.exists():
        return {}
    return {name: _part(**values) for name, values in json.loads(path.read_text()).items()}


def write(parts: Mapping[str, Part], path: Path = RESULTS) -> None:
    """Write all parts."""
    path.write_text(json.dumps({name: asdict(part) for name, part in parts.items()}, indent=1) + "\n")


def _part(rows: list[dict], **others: str) -> Part:
    return Part(rows=tuple(_row(**row) for row in rows), **others)


def _row(ours: list[float], peers: dict[str, list[float] | str], **others: str) -> Row:
    theirs = {name: found if isinstance(found, str) else tuple(found) for name, found in peers.items()}
    return Row(ours=tuple(ours), peers=theirs, **others)


def _machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{len(os.sched_getaffinity(0))} cores of {model[1] if model else '?'}, {memory_gb:.0f} GB, {system}"


def _versions() -> str:
    own = [f"{name} {version(name)}" for name in OWN_PACKAGES]
    slurm = run(["slurmd", "-V"]).strip()
    return ", ".join([f"Python {platform.python_version()}", slurm, *own, *_peer_versions()])


def _peer_versions() -> list[str]:
    """Return the versions in the peers' environment, of torch only where it is another one than ours."""
    script = f"from importlib.metadata import version\nfor name in {PEER_PACKAGES}: print(name, version(name))"
    return [line for line in run([PEERS_PYTHON, "-c", script]).splitlines() if line != f"torch {version('torch')}"]
