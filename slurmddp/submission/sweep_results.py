"""Reads the result of each setting of a sweep: its last metrics or its last line, and how its last job ended."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from slurmddp.config.job_array import folder_name
from slurmddp.config.option_types import unknown
from slurmddp.errors import UsageError
from slurmddp.monitoring.logs.merge import last_lines_of_settings
from slurmddp.monitoring.status import query_jobs
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs import history, lookup
from slurmddp.runs.facts import read_job
from slurmddp.runs.history import History
from slurmddp.runs.layout import RunDir
from slurmddp.runs.registry import hint_elsewhere
from slurmddp.runs.submissions import settings_of, submissions, submitted_at
from slurmddp.text import clean_line, quote_value

_MOST_NAMED: Final = 10
_MOST_BLANK: Final = 20
"""Lines at the end of an output in which one is searched that is not blank."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How far one setting is."""

    values: Mapping[str, str]
    run: RunDir
    outcome: Outcome
    """What its last job has come to."""
    step: int
    total: int
    metrics: Mapping[str, float]
    """The last that were logged, by the program's own names."""


def find_sweep(name: str | None, runs_dir: str) -> RunDir:
    """Return the sweep of that name, or the one that was submitted last. Raises UsageError without one, naming all."""
    if name:
        with suppress(UsageError):
            run = lookup.find([name], runs_dir)[0].run
            if run and any(map(settings_of, submissions(run))):
                return run
    known = [run for run in lookup.runs(runs_dir) if any(map(settings_of, submissions(run)))]
    if name is None and known:
        return max(known, key=submitted_at)
    said = f"{quote_value(name)} is not a sweep" if name is not None else f"there is no sweep in {runs_dir}"
    names = ", ".join(run.path.name for run in known[:_MOST_NAMED])
    here = f"there {'is' if len(known) == 1 else 'are'} {names}" if names else hint_elsewhere()
    raise UsageError(f"{said}; {here or '`slurmddp sweep --set KEY=VALUE,... COMMAND` makes one'}")


def results(run: RunDir, environ: Mapping[str, str]) -> list[Result]:
    """Return the result of each setting, in the order of submission; Slurm is asked of those that may still run."""
    sweep = lookup.find_all_jobs(run)
    parts = {part.run: part for part in lookup.settings(sweep) if part.run}
    newest = {task: history.read_newest(task) for task in parts}
    outcomes = {
        task: read_job(task, part.jobs[-1], silent=True, history=newest[task]).outcome for task, part in parts.items()
    }
    unfinished = [part for task, part in parts.items() if not outcomes[task].final]
    outcomes |= {status.run: status.outcome for status in query_jobs(unfinished, environ) if status.run}
    known = {folder_name(values): values for record in sweep.records for values in settings_of(record)}
    return [_build_result(task, known[task.path.name], outcomes[task], newest[task]) for task in parts]


def last_printed(run: RunDir) -> dict[RunDir, str]:
    """Return the last line that rank 0 of each setting has printed and that is not blank; empty without one."""
    found = last_lines_of_settings(lookup.find_all_jobs(run), _MOST_BLANK)
    return {
        setting: next(filter(None, (" ".join(clean_line(line.text).split()) for line in reversed(printed))), "")
        for setting, printed in found.items()
    }


def ranked(found: list[Result], by: str, *, highest: bool) -> list[Result]:
    """Return the results with the best first: the lowest of that metric, or the highest.

    Settings without it come behind, and settings that are not done last. Without any metric the order is kept.

    Raises UsageError when no setting has logged it.
    """
    names = dict.fromkeys(name for result in found for name in result.metrics)
    if not names:
        return found
    if by not in names:
        raise unknown(by, names, "--by", what="metric")

    def rank(one: Result) -> tuple[bool, int, float]:
        value = one.metrics.get(by, 0.0)
        group = 2 if by not in one.metrics else int(math.isnan(value))
        signed = -value if highest else value
        return one.outcome.kind is not Kind.DONE, group, 0.0 if group else signed

    return sorted(found, key=rank)


def _build_result(run: RunDir, values: Mapping[str, str], outcome: Outcome, newest: History) -> Result:
    last, saved = newest.last("metrics"), newest.last("checkpoint")
    logged = last.fields.get("values") if last else None
    numbers = {name: history.number(value) for name, value in logged.items()} if isinstance(logged, dict) else {}
    return Result(
        values=values,
        run=run,
        outcome=outcome,
        step=max((event.count("step") for event in (last, saved) if event), default=0),
        total=last.count("total") if last else 0,
        metrics={name: value for name, value in numbers.items() if value is not None},
    )
