"""Submits the settings of a sweep that are not done yet, as few arrays as the cluster allows; reads their results.

A result is the last metrics or the last line of a setting, and how its last job ended.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from slurmddp.cluster.partitions import Cluster
from slurmddp.cluster.request import Request
from slurmddp.config.job_array import Array, Task, folder_name
from slurmddp.config.option_types import unknown
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.logs.merge import Selection, lines
from slurmddp.monitoring.status import query_jobs
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs import history, lookup
from slurmddp.runs.facts import is_finished, read_job
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import hold_submission
from slurmddp.runs.registry import hint_elsewhere
from slurmddp.runs.submissions import last_time, settings_of, submissions
from slurmddp.submission.compatibility import find_active
from slurmddp.submission.submit import made_folder, submit
from slurmddp.submission.submit_once import Notice, Submitted
from slurmddp.text import clean_line, quote_value

_MOST_NAMED: Final = 10
_MOST_BLANK: Final = 20
"""Lines at the end of an output in which one is searched that is not blank."""


class SweepProgress(NamedTuple):
    """The settings of a sweep by their state."""

    done: tuple[Task, ...]
    queued: tuple[Task, ...]
    """Those that wait or run."""
    missing: tuple[Task, ...]


def read_progress(run: RunDir, tasks: Sequence[Task], environ: Mapping[str, str]) -> SweepProgress:
    """Return which tasks are done, by their runs' events, and which are queued or running, by Slurm.

    Raises ClusterError when the controller does not answer.
    """
    busy = {folder_name(record["settings"][index]) for record, index in active_tasks(run, environ)}
    states: dict[str, list[Task]] = {"done": [], "queued": [], "missing": []}
    for task in tasks:
        is_done = is_finished(RunDir(run.path / task.folder))
        states["done" if is_done else "queued" if task.folder in busy else "missing"].append(task)
    return SweepProgress(**{state: tuple(found) for state, found in states.items()})


def active_tasks(run: RunDir, environ: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield this sweep's queued and running tasks: the record of the array, and the index. Raises as `find_active`."""
    settings = {record["job"]: record for record in submissions(run) if settings_of(record)}
    for job in find_active(settings.values(), environ):
        if job.ref.task_index is not None:
            yield settings[job.number], job.ref.task_index


def sweep(
    request: Request,
    array: Array,
    *,
    change: bool,
    force: bool,
    environ: Mapping[str, str],
    notice: Notice,
    accepted: Callable[[Submitted], None],
) -> tuple[SweepProgress, list[Submitted]]:
    """Submit the tasks of an array that are neither done nor in the queue; return the state before, and the jobs.

    The run is held meanwhile, so that no other process submits for the sweep. More tasks than MaxArraySize
    make several arrays. `accepted` gets each array at once. Raises UsageError and ClusterError as `submit` does, with
    the number of settings that were queued before.
    """
    spec = request.resolved.spec
    run, size = RunDir.named(spec.runs_dir, spec.job_name), (request.cluster or Cluster()).max_array_size

    def keep_folder(done: Submitted) -> None:
        folder.is_needed = True
        accepted(done)

    with made_folder(run) as folder, hold_submission(run) as killed:
        where, done = read_progress(run, array.tasks, environ), list[Submitted]()
        parts, whole = list(array._replace(tasks=where.missing).parts(size)), len(where.missing)
        if len(parts) > 1 and array.max_parallel:
            raise ClusterError(
                f"--max-parallel holds for one array, and {whole} settings need {len(parts)} here "
                "(MaxArraySize); sweep over fewer, or leave it out"
            )
        claimed = partial(submit, change=change, force=force, environ=environ, notice=notice, held=nullcontext(killed))
        for part in parts:
            try:
                done.append(claimed(msgspec.structs.replace(request, array=part), accepted=keep_folder))
            except ClusterError as error:
                if not done:
                    raise
                first = sum(len(part.tasks) for part in parts[: len(done)])
                raise ClusterError(f"{first} of {whole} settings are queued, then: {error}") from error
        return where, done


class Result(NamedTuple):
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
    known = [one for one in lookup.survey(runs_dir).submitted if any(map(settings_of, one.records))]
    if name is None and known and (run := max(known, key=lambda one: last_time(one.records)).run):
        return run
    said = f"{quote_value(name)} is not a sweep" if name is not None else f"there is no sweep in {runs_dir}"
    names = ", ".join(one.name for one in known[:_MOST_NAMED])
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
    found = []
    for task in parts:
        last, saved = newest[task].last("metrics"), newest[task].last("checkpoint")
        result = Result(
            values=known[task.path.name],
            run=task,
            outcome=outcomes[task],
            step=max((event.count("step") for event in (last, saved) if event), default=0),
            total=last.count("total") if last else 0,
            metrics=last.values if last else {},
        )
        found.append(result)
    return found


def last_printed(run: RunDir) -> dict[RunDir, str]:
    """Return the last line that is not blank of rank 0 of each setting, in its newest attempt; empty without one."""
    found: dict[RunDir, str] = {}
    for job_id, setting in lookup.find_all_jobs(run).tasks.items():
        wanted = Selection(run=setting, job_id=job_id, batch=False)
        if wanted.attempts() or setting not in found:
            texts = (" ".join(clean_line(line.text).split()) for line in reversed([*lines(wanted, _MOST_BLANK)]))
            found[setting] = next(filter(None, texts), "")
    return found


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
