"""`slurmddp sweep`: many settings as one array, and what came out of them."""

import csv
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from slurmddp.cli.dependency_options import after_options, behind
from slurmddp.cli.job_options import SYNOPSIS, JobCommand, job_options, resolve, runs_dir_option, tell, write
from slurmddp.cli.sweep_options import set_options, swept
from slurmddp.cluster.request import Request, fitted
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.submission.sbatch import Submitted
from slurmddp.submission.submit import dry_run as dry_run_of
from slurmddp.submission.sweep import Standing, standing
from slurmddp.submission.sweep import sweep as submit_sweep
from slurmddp.submission.sweep_results import Result, ranked, results
from slurmddp.text import printable, table

KEYS: Final = tuple(key for key in JOB_FIELDS if key != "reset")
_SHOWN: Final = 4
"""Metrics that a terminal has room for."""


class _Sweep(JobCommand):
    """`sweep results ...` is a command of its own; all else is a sweep."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Leave the words behind `results` to that command."""
        if args[:1] == ["results"]:
            return show.make_context(f"{info_name} results", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


@click.command(cls=_Sweep, options_metavar=SYNOPSIS)
@job_options(KEYS)
@set_options
@after_options
@click.option("--continue", "change", is_flag=True, help="Go on with a sweep though its COMMAND has changed.")
@click.option("--dry-run", is_flag=True, help="Print the script, and what would be submitted; nothing is queued.")
@click.option("--force", is_flag=True, help="Submit even what seems never to start here.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def sweep(  # noqa: PLR0913 - an argument for each option
    job_file: Path | None,
    words: tuple[str, ...],
    *,
    sets: tuple[str, ...],
    side_by_side: bool,
    max_parallel: int | None,
    after: tuple[str, ...],
    after_ok: tuple[str, ...],
    change: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **parameters: Any,
) -> int:
    """Submit many settings of a job as one array; stdout is its id alone.

    Each setting is a run of its own, in the folder of the sweep, and comes back by itself when it is interrupted.
    The same command again submits only what is missing. `slurmddp sweep results NAME` shows what came out.
    """
    resolved = behind(resolve(job_file, words, parameters), after, after_ok)
    request = swept(fitted(resolved, os.environ), sets, side_by_side, max_parallel)
    if request.array is None:
        raise UsageError("there is nothing to sweep over; give --set KEY=VALUE,..., as in --set lr=1e-3,1e-4")
    job = request.resolved.spec
    run = RunDir.named(job.runs_dir, job.job_name)
    if dry_run:
        where, jobs = standing(run, request.array.tasks, os.environ), list[Submitted]()
        if where.missing:
            wanted = msgspec.structs.replace(request, array=replace(request.array, tasks=where.missing))
            return _dry_run(wanted, where, change=change, force=force, as_json=as_json)
    else:
        where, jobs = _submitted(request, change=change, force=force, as_json=as_json)
    tell(_told(where))
    if as_json:
        click.echo(json.dumps(_described(run, where, jobs)))
    lost = [done for done in jobs if done.unrecorded]
    if lost:
        raise SlurmddpError(f"job {lost[0].job_id.number} is queued, but could not be recorded: {lost[0].unrecorded}")
    tell(f"folder of the sweep: {run.path}")
    return 0


def _submitted(request: Request, *, change: bool, force: bool, as_json: bool) -> tuple[Standing, list[Submitted]]:
    tell_id = (lambda _: None) if as_json else _print_id
    return submit_sweep(request, change=change, force=force, environ=os.environ, notice=tell, accepted=tell_id)


def _print_id(done: Submitted) -> None:
    click.echo(done.job_id.number)
    sys.stdout.flush()


def _told(where: Standing) -> str:
    count = len(where.done) + len(where.queued) + len(where.missing)
    return f"{count} settings: {len(where.done)} done, {len(where.queued)} queued, {len(where.missing)} to submit"


def _dry_run(request: Request, where: Standing, *, change: bool, force: bool, as_json: bool) -> int:
    text, said = dry_run_of(request, change=change, environ=os.environ, force=force)
    if as_json:
        click.echo(json.dumps({"script": text.decode(), "sbatch": said}))
        return 0
    write(sys.stdout, text)
    tell(_told(where))
    tell(said)
    return 0


def _described(run: RunDir, where: Standing, jobs: Sequence[Submitted]) -> dict[str, Any]:
    return {
        "jobs": [done.job_id.number for done in jobs],
        "name": run.path.name,
        "run": str(run.path),
        "submitted": [dict(task.values) for task in where.missing] if jobs else [],
        "queued": [dict(task.values) for task in where.queued],
        "done": [dict(task.values) for task in where.done],
    }


@click.command("results")
@click.argument("name")
@click.option("--by", default="loss", metavar="METRIC", help="What the best is told by. [default: loss]")
@click.option("--highest", is_flag=True, help="The highest is the best, and not the lowest.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all metrics as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@runs_dir_option
def show(name: str, by: str, *, highest: bool, as_csv: bool, as_json: bool, runs_dir: str) -> None:
    """Show what came out of each setting of a sweep, the best first."""
    found = ranked(results(RunDir.named(runs_dir, name)), by, highest=highest)
    if as_json:
        click.echo(json.dumps([_row_of(result) for result in found]))
    elif as_csv:
        _write_csv(found)
    else:
        for line in _lines(found, by):
            click.echo(line)


def _row_of(result: Result) -> dict[str, Any]:
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in result.metrics.items()}
    return {
        "settings": dict(result.values),
        "run": str(result.run.path),
        "done": result.done,
        "step": result.step,
        "total": result.total,
        "metrics": metrics,
    }


def _write_csv(found: Sequence[Result]) -> None:
    keys, names = _keys(found), _names(found)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    heads = [f"{name} logged" if name in keys else name for name in names]
    writer.writerow([*keys, "done", "step", "total", *heads])
    for result in found:
        own = [result.values.get(key, "") for key in keys]
        logged = [result.metrics.get(name, "") for name in names]
        writer.writerow([*own, int(result.done), result.step, result.total, *logged])


def _lines(found: Sequence[Result], by: str) -> list[str]:
    keys = _keys(found)
    names = sorted((name for name in _names(found) if name not in keys), key=lambda name: name != by)[:_SHOWN]
    rows = [[printable(cell) for cell in _cells(result, keys, names)] for result in found]
    head = [*keys, *map(printable, names), "step", "state"]
    return table([head, *rows], right=range(len(keys), len(head) - 1))


def _keys(found: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(key for result in found for key in result.values))


def _names(found: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(name for result in found for name in result.metrics))


def _cells(result: Result, keys: Sequence[str], names: Sequence[str]) -> list[str]:
    numbers = [f"{result.metrics[name]:.6g}" if name in result.metrics else "" for name in names]
    step = f"{result.step}/{result.total}" if result.total else ""
    ended = "done" if result.done else "failed" if result.failed else ""
    state = ended or ("unfinished" if result.run.events.exists() else "not begun")
    return [*(result.values.get(key, "") for key in keys), *numbers, step, state]
