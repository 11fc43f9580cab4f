"""`slurmddp status`: show the runs of a folder and the state of their jobs."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import runs_dir_option
from slurmddp.cli.status_format import format_job, format_jobs
from slurmddp.errors import UsageError
from slurmddp.monitoring.status import JobStatus, last_submission, query_targets
from slurmddp.runs import lookup, registry
from slurmddp.runs.files import json_value
from slurmddp.runs.submissions import last_time
from slurmddp.slurm.client import explain_silence
from slurmddp.text import WIDTH, count, escape_text

if TYPE_CHECKING:
    from slurmddp.report.figures import Figures

FAILED: Final = 1
UNKNOWN: Final = 3


@click.command()
@targets_argument
@runs_dir_option
@click.option("--all-folders", is_flag=True, help="Show the runs of every folder in which you have submitted any.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def status(words: tuple[str, ...], runs_dir: str, *, all_folders: bool, as_json: bool) -> int:
    """Show runs and their jobs: state, reason, progress; a single named job with all details.

    Without names, the newest job of each run in this folder, the newest first. Exit status for named jobs: 0 if they
    are pending, running or done, 1 if one has failed or was cancelled, 3 if the state of one is not known. Of a run
    counts its running job, else the next pending one, else the last one.
    """
    if all_folders and words:
        raise UsageError("--all-folders shows every run; leave it out, or leave the names out")
    folders = map(str, registry.known_folders()) if all_folders else (runs_dir,)
    targets = [target for folder in folders for target in lookup.find(words, folder, local=True)]
    if not words:
        targets = [*map(last_submission, sorted(targets, key=lambda one: last_time(one.records), reverse=True))]
    parts = [part for target in targets for part in lookup.settings(target)]
    statuses = query_targets([part for part in parts if part.jobs], os.environ)
    figures = _collect_figures(parts[0], statuses[0]) if words and len(parts) == 1 else None
    currents = [_current_tasks(group) for group in statuses]
    shown = list(dict.fromkeys(chain.from_iterable(statuses if words else currents)))
    if as_json:
        click.echo(json.dumps([_as_json(item, figures) for item in shown]))
    elif shown:
        detailed = currents[0] if words and [len(group) for group in currents] == [1] else []
        _print(shown, _format_folders(shown) if all_folders else _format(shown, detailed, figures, each=bool(words)))
    else:
        print_message(_explain_none(runs_dir, all_folders=all_folders))
    phases = {item.phase for item in chain.from_iterable(currents)}
    if words and phases & {"failed", "cancelled"}:
        return FAILED
    return UNKNOWN if "unknown" in phases and (words or any(item.silence for item in shown)) else 0


def _collect_figures(target: lookup.Target, statuses: Sequence[JobStatus]) -> "Figures | None":
    """Return a run in numbers; None if the target is not a whole run."""
    if target.run is None or target.jobs != lookup.find_all_jobs(target.run).jobs:
        return None
    from slurmddp.report.figures import collect_figures

    return collect_figures(target.run, statuses, now=time.time())


def _as_json(item: JobStatus, figures: "Figures | None") -> dict[str, Any]:
    """Return a status as a value for JSON: times in ISO 8601, `nan` and `inf` as texts."""
    said = {"state": item.state, "outcome": item.outcome.kind, "phase": item.phase, "exit_status": item.exit_status}
    fields = asdict(replace(item, slurm=None)) | said | {"run": str(item.run.path) if item.run else None}
    fields["whole_run"] = asdict(figures) if figures else None
    record: dict[str, Any] = json_value({name: value for name, value in fields.items() if name != "slurm"})
    return record


def _current_tasks(group: Sequence[JobStatus]) -> list[JobStatus]:
    """Return the current job of a run with all its tasks: the running one, else the next pending one, else the last."""
    current = [item for phase in ("running", "queued") for item in group if item.phase == phase] or group[-1:]
    return [item for item in group if item.ref.array_id == current[0].ref.array_id]


def _explain_none(runs_dir: str, *, all_folders: bool) -> str:
    where = "any folder" if all_folders else escape_text(runs_dir)
    if not all_folders and (unreadable := len(lookup.survey(runs_dir).unreadable)):
        return f"{count(unreadable, 'run')} in {where} cannot be read: Permission denied"
    hint = "" if all_folders else registry.hint_elsewhere()
    return f"there are no submitted runs in {where}; {hint or '`slurmddp submit` makes one'}"


def _print(shown: Sequence[JobStatus], lines: Iterable[str]) -> None:
    colours = {escape_text(item.state): item.outcome.meaning.colour for item in shown}
    states = "|".join(re.escape(state) for state, colour in colours.items() if colour)
    if states and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        state = re.compile(rf"(?<=\s)({states})(?=\s|$)")
        lines = (state.sub(lambda found: click.style(found[0], fg=colours[found[0]]), line, count=1) for line in lines)
    click.echo("\n".join(lines))
    if silence := next((item.silence for item in shown if item.silence), ""):
        print_message(f"{explain_silence(escape_text(silence))}; the states come from files and may be old")


def _format_folders(shown: Sequence[JobStatus]) -> Iterator[str]:
    """Yield a table for each folder, below its path; the folder of the newest run first."""
    folders: dict[str, list[JobStatus]] = {}
    for item in shown:
        run = item.run and (item.run.sweep or item.run)
        folders.setdefault(str(run.path.parent) if run else "", []).append(item)
    for number, (folder, items) in enumerate(folders.items()):
        yield from ("",) if number else ()
        yield f"{escape_text(folder)}:"
        yield from _format(items)


def _format(
    shown: Sequence[JobStatus],
    detailed: Sequence[JobStatus] = (),
    figures: "Figures | None" = None,
    *,
    each: bool = False,
) -> Iterator[str]:
    for item in detailed:
        yield from format_job(item, figures)
    if others := [item for item in shown if item not in detailed]:
        yield from ("" for _ in detailed)
        width = max(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize
        yield from format_jobs(others, each=each, width=width)
