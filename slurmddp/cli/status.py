"""`slurmddp status`: show the runs of a folder and the state of their jobs."""

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from slurmddp.cli.run_arguments import runs_dir_option, targets_argument
from slurmddp.cli.screen import paint, print_json, print_message, screen_width
from slurmddp.cli.status_format import format_job, format_jobs, show_state
from slurmddp.monitoring.status import JobStatus, last_submission, query_targets
from slurmddp.runs import lookup, registry
from slurmddp.runs.files import json_value
from slurmddp.runs.submissions import last_time
from slurmddp.slurm.client import explain_silence
from slurmddp.text import count, escape_text

if TYPE_CHECKING:
    from slurmddp.report.figures import Figures

FAILED: Final = 1
UNKNOWN: Final = 3


@click.command()
@targets_argument
@runs_dir_option
@click.option("--wide", is_flag=True, help="Shorten no name, id or reason to the width of the screen.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def status(words: tuple[str, ...], runs_dir: str, *, wide: bool, as_json: bool) -> int:
    """Show runs and their jobs: state, reason, progress; a single named job with all details.

    Without names, the newest job of each run in this folder, the newest first. Exit status for named jobs: 0 if they
    are pending, running or done, 1 if one has failed or was cancelled, 3 if the state of one is not known. Of a run
    counts its running job, else the next pending one, else the last one.
    """
    targets = lookup.find(words, runs_dir, local=True) if words else newest_first(runs_dir)
    parts = [part for target in targets for part in lookup.settings(target)]
    statuses = query_targets([part for part in parts if part.jobs], os.environ)
    figures = _collect_figures(parts[0], statuses[0]) if words and len(parts) == 1 else None
    currents = [current_tasks(group) for group in statuses]
    shown = list(dict.fromkeys(chain.from_iterable(statuses))) if words else [*chain.from_iterable(currents)]
    if as_json:
        print_json(jobs=[_as_json(item, figures) for item in shown])
    elif shown:
        detailed = currents[0] if words and [len(group) for group in currents] == [1] else []
        lines = [line for item in detailed for line in format_job(item, figures)]
        others = [item for item in shown if item not in detailed]
        lines += [""] * bool(detailed and others)
        width = sys.maxsize if wide else screen_width()
        _print(shown, [*lines, *format_jobs(others, each=bool(words), width=width)])
    else:
        print_message(explain_none(runs_dir))
    phases = {item.phase for item in chain.from_iterable(currents)}
    if words and phases & {"failed", "cancelled"}:
        return FAILED
    return UNKNOWN if "unknown" in phases and (words or any(item.silence for item in shown)) else 0


def newest_first(runs_dir: str) -> list[lookup.Target]:
    """Return the last submission of each run in a folder, the newest first."""
    targets = lookup.find([], runs_dir, local=True)
    return [*map(last_submission, sorted(targets, key=lambda one: last_time(one.records), reverse=True))]


def _collect_figures(target: lookup.Target, statuses: Sequence[JobStatus]) -> "Figures | None":
    """Return a run in numbers; None if the target is not a whole run."""
    if target.run is None or target.jobs != lookup.find_all_jobs(target.run).jobs:
        return None
    from slurmddp.report.figures import collect_figures

    return collect_figures(target.run, statuses, now=time.time())


def _as_json(item: JobStatus, figures: "Figures | None") -> dict[str, Any]:
    """Return a status as a value for JSON: times in ISO 8601, `nan` and `inf` as texts."""
    end = item.outcome
    said = {"state": item.state, "outcome": end.kind, "phase": item.phase, "exit_status": end.exit_status}
    fields = item._asdict() | said | {"run": str(item.run.path) if item.run else None}
    fields["progress"] = item.progress._asdict() if item.progress else None
    fields["whole_run"] = vars(figures) if figures else None
    del fields["slurm"]
    return {name: json_value(value) for name, value in fields.items()}


def current_tasks(group: Sequence[JobStatus]) -> list[JobStatus]:
    """Return the current job of a run with all its tasks: the running one, else the next pending one, else the last."""
    current = [item for phase in ("running", "queued") for item in group if item.phase == phase] or group[-1:]
    return [item for item in group if item.ref.array_id == current[0].ref.array_id]


def explain_none(runs_dir: str) -> str:
    """Return why no run is shown, and what to type."""
    where = escape_text(runs_dir)
    if unreadable := len(lookup.survey(runs_dir).unreadable):
        return f"{count(unreadable, 'run')} in {where} cannot be read: Permission denied"
    hint = registry.hint_elsewhere() or "`slurmddp submit` makes one"
    return f"there are no submitted runs in {where}; {hint}"


def _print(shown: Sequence[JobStatus], lines: Iterable[str]) -> None:
    words = {escape_text(word): colour for word, colour in map(show_state, shown)}
    painted = {word: paint(word, colour) for word, colour in words.items()}
    state = re.compile(rf"(?<=\s)({'|'.join(map(re.escape, painted))})(?=\s|$)")
    click.echo("\n".join(state.sub(lambda found: painted[found[0]], line, 1) for line in lines))
    if silence := next((item.silence for item in shown if item.silence), ""):
        print_message(f"{explain_silence(escape_text(silence))}; the states come from files and may be old")
