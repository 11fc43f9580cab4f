"""`slurmddp status`: the runs of a folder and what became of their jobs."""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import click

from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_options import runs_dir_option, tell
from slurmddp.cli.status_format import block, rows
from slurmddp.monitoring.status import JobStatus, current, look, number
from slurmddp.runs import lookup as naming
from slurmddp.runs.lookup import Target
from slurmddp.runs.submissions import submissions
from slurmddp.slurm.states import Phase
from slurmddp.text import WIDTH, printable

FAILED: Final = 1
UNREACHED: Final = 3


@click.command()
@targets_argument
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def status(words: tuple[str, ...], runs_dir: str, *, as_json: bool) -> int:
    """Show runs and their jobs: state, why, progress; one that is named alone, in full.

    Without words the newest job of each run of this folder, the newest first. Exit status for jobs that are named: 0
    when they wait, run or are done, 1 when one has failed or was cancelled, 3 when nobody tells what became of one.
    Of a run the job counts that runs, else the next in the queue, else the last one.
    """
    targets = naming.find(words, runs_dir, local=True)
    runs = [_of(target, named=bool(words)) for target in ([*targets] if words else _newest_first(targets))]
    found = [part for run in runs for part in naming.settings(run)]
    statuses = _grouped([part for part in found if part.jobs])
    shown = list(dict.fromkeys(item for group in statuses for item in (group if words else _counting(group))))
    if as_json:
        click.echo(json.dumps([record(item) for item in shown]))
    else:
        _print(shown, statuses, runs_dir, named=bool(words))
    return _exit_status([item for group in statuses for item in _counting(group)], named=bool(words))


def record(item: JobStatus) -> dict[str, Any]:
    """Return a status as JSON has it: times in ISO 8601, and `nan` and `inf` as texts."""
    fields = {**asdict(item), "run": str(item.run.path) if item.run else None, "phase": item.phase}
    plain: dict[str, Any] = _plain(fields)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _of(target: Target, *, named: bool) -> Target:
    return target if named else current(target)


def _newest_first(targets: Sequence[Target]) -> list[Target]:
    def submitted(target: Target) -> str:
        return (
            max((str(record.get("time", "")) for record in submissions(target.run)), default="") if target.run else ""
        )

    return sorted(targets, key=submitted, reverse=True)


def _grouped(targets: Sequence[Target]) -> list[list[JobStatus]]:
    """Return the statuses of each target, from one look at all."""
    by_job: dict[tuple[object, str], dict[JobStatus, None]] = {}
    for item in look(targets, os.environ):
        by_job.setdefault((item.run, number(item.job_id)), {})[item] = None
    return [
        [item for job in target.jobs for item in by_job.get((target.run, number(job)), ()) if _is_of(item, job)]
        for target in targets
    ]


def _is_of(item: JobStatus, job: str) -> bool:
    """Tell whether a status is of the job that was named, or of one of its tasks."""
    return job in (item.job_id, number(item.job_id))


_FIRST: Final[Sequence[Phase]] = ("running", "queued")


def _counting(group: Sequence[JobStatus]) -> list[JobStatus]:
    """Return the job that a run stands at, with all its tasks: that runs, else waits first, else is the last."""
    for phase in _FIRST:
        if found := [item for item in group if item.phase == phase]:
            return _tasks(group, found[0])
    return _tasks(group, group[-1]) if group else []


def _tasks(group: Sequence[JobStatus], one: JobStatus) -> list[JobStatus]:
    return [item for item in group if number(item.job_id) == number(one.job_id)]


def _print(shown: Sequence[JobStatus], groups: Sequence[Sequence[JobStatus]], runs_dir: str, *, named: bool) -> None:
    if not shown:
        hint = "`slurmddp submit` makes one, --runs-dir names another"
        tell(f"no run was submitted from here into {printable(runs_dir)}; {hint}")
        return
    width = max(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
    for line in _lines(shown, groups, named=named, width=width):
        click.echo(line)
    if silence := next((item.silence for item in shown if item.silence), ""):
        tell(f"Slurm's controller does not answer ({printable(silence)}); this is what is on record")


def _lines(
    shown: Sequence[JobStatus], groups: Sequence[Sequence[JobStatus]], *, named: bool, width: int
) -> Iterator[str]:
    counting = _counting(groups[0]) if named and len(groups) == 1 else []
    if len(counting) != 1:
        yield from rows(shown, each=named, width=width)
        return
    yield from block(counting[0])
    if others := [item for item in shown if item is not counting[0]]:
        yield from ("", *rows(others, each=named, width=width))


def _exit_status(counting: Sequence[JobStatus], *, named: bool) -> int:
    phases = {item.phase for item in counting}
    if named and phases & {"failed", "cancelled"}:
        return FAILED
    return UNREACHED if "unknown" in phases and (named or any(item.silence for item in counting)) else 0
