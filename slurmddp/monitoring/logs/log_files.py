"""The output files of one job, with the rank or node of each. Reads folders and the run's events."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

from slurmddp.monitoring.status.slurm_answers import task_indices
from slurmddp.runs.exit_records import read_record
from slurmddp.runs.history import read_outline
from slurmddp.runs.layout import RunDir

Kind = Literal["batch", "node", "rank"]

_FILE: Final = re.compile(r"(node-)?([0-9]+)\.(?:out|stdout)")
"""An executor's job keeps standard output and standard error apart: `0.stdout` and `0.out`."""


@dataclass(frozen=True)
class Source:
    """One file of output."""

    path: Path
    kind: Kind
    """`node` is the output of a launcher, which runs once on each node."""
    number: int = -1
    """The rank, or the node; -1 for the batch script."""
    attempt: str = ""
    """Empty for the batch script, which has one file for all attempts."""
    hosts: "Hosts | None" = field(default=None, compare=False, repr=False)
    """Where the ranks of the attempt run; None for the batch script."""

    @cached_property
    def host(self) -> str:
        """The host's name; empty where it is not on record."""
        return self.hosts.of(self.kind, self.number) if self.hosts else ""

    @property
    def rank(self) -> int | None:
        """The rank; None for the batch script and launchers."""
        return self.number if self.kind == "rank" else None

    @cached_property
    def order(self) -> tuple[bool, bool, int]:
        """Order of lines of the same time: the batch script, the nodes, the ranks."""
        return self.kind == "rank", self.kind == "node", self.number

    @property
    def label(self) -> str:
        """What to call it."""
        return self.kind if self.number < 0 else f"{self.kind} {self.number}"


def batch_sources(run: RunDir, job_id: str) -> list[Source]:
    """Return the batch script's output, and its file of errors, which few have."""
    return [Source(path, "batch") for path in (run.batch_log(job_id), run.batch_errors(job_id))]


def attempt_sources(
    run: RunDir, job_id: str, attempt: str, ranks: Collection[int] | None, hosts: "Hosts | None" = None
) -> list[Source]:
    """Return the existing files of these ranks in order; for None, those of all ranks and of the launchers."""
    hosts = hosts or Hosts(run, job_id, attempt)
    if ranks is not None:
        logs = [(rank, run.rank_log(job_id, attempt, rank)) for rank in sorted(ranks)]
        logs += [(rank, path.with_suffix(".stdout")) for rank, path in logs]
        return [Source(path, "rank", rank, attempt, hosts) for rank, path in logs if path.exists()]
    folder, found = run.attempt(job_id, attempt), list[Source]()
    for name in os.listdir(folder) if folder.is_dir() else ():  # noqa: PTH208 names alone: there may be thousands
        if match := _FILE.fullmatch(name):
            found.append(Source(folder / name, "node" if match[1] else "rank", int(match[2]), attempt, hosts))
    return sorted(found, key=attrgetter("order"))


class Hosts:
    """Where the ranks of one attempt run: by rank 0's record of the rendezvous, else by each rank's exit record.

    Nothing is read before a host is asked for.
    """

    def __init__(self, run: RunDir, job_id: str, attempt: str) -> None:
        self._run, self._job_id, self._attempt = run, job_id, attempt

    def of(self, kind: Kind, number: int) -> str:
        """Return a host's name; empty where it is not on record."""
        if kind == "node":
            return next(islice(self._ranks, number, None), "")
        if number in self._met:
            return self._met[number]
        record = read_record(self._run.rank_record(self._job_id, self._attempt, number), number)
        return record.host if record else ""

    @property
    def are_missing(self) -> bool:
        """Whether the rendezvous was looked for, and was not on record then."""
        return not vars(self).get("_ranks", True)

    @cached_property
    def _ranks(self) -> Mapping[str, Any]:
        """The ranks of each host, in the order of the nodes."""
        events = read_outline(self._run).of_job(self._job_id).attempts
        start = next((one.last("start") for one in events if one.name == self._attempt), None)
        ranks = start.fields.get("ranks") if start else None
        return ranks if isinstance(ranks, dict) else {}

    @cached_property
    def _met(self) -> dict[int, str]:
        return {rank: host for host, ranges in self._ranks.items() for rank in task_indices(f"[{ranges}]") or ()}
