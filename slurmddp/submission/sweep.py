"""Submits the settings of a sweep that are not done yet, as one array or as few arrays as the cluster allows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from slurmddp.cluster.partitions import Cluster
from slurmddp.cluster.request import Request
from slurmddp.config.job_array import Array, Task, folder_name
from slurmddp.config.job_files import read_job_file
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.errors import ClusterError
from slurmddp.runs.facts import is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import hold_submission
from slurmddp.runs.submissions import settings_of, submissions
from slurmddp.slurm import queries
from slurmddp.submission.submit import made_folder, submit
from slurmddp.submission.submit_once import Notice, Submitted
from slurmddp.text import count

_SIZE: Final = ("nodes", "gpus-per-node", "ntasks-per-node", "cpus-per-task", "mem", "partition", "time")


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
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


def describe_growth(run: RunDir, request: Request) -> str:
    """Return what a sweep holds when new settings come to it, and with which other options; else an empty text."""
    known = {folder_name(values) for record in submissions(run) for values in settings_of(record)}
    added = [task for task in (request.array.tasks if request.array else ()) if task.folder not in known]
    if not (known and added):
        return ""
    before, spec = read_job_file(run.spec).table if run.spec.exists() else {}, request.resolved.spec
    now = {key: getattr(spec, JOB_FIELDS[key].name) for key in _SIZE}
    changed = [key for key in _SIZE if before and before.get(key) != now[key]]
    old, new = (" ".join(f"--{key} {table[key]}" for key in changed if table.get(key)) for table in (before, now))
    return (
        f"run {run.path.name} had {count(len(known), 'setting')}{old and f' with {old}'}; {len(added)} more "
        f"{'is' if len(added) == 1 else 'are'} added{new and f' with {new}'}; to make a new run instead, give --name"
    )


def active_tasks(run: RunDir, environ: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield this sweep's queued and running tasks: the record of the array, and the index.

    Slurm may give a number again: only an array with this sweep's own script counts. Raises ClusterError when the
    controller does not answer.
    """
    settings = {record["job"]: record for record in submissions(run) if settings_of(record)}
    known = queries.jobs(list(settings), environ) if settings else []
    tasks = [job.ref for job in known if not job.has_ended]
    arrays = {task.array_id for task in tasks if task.is_task}
    ours = {array for array in arrays if queries.script_digest(array, environ) == settings[array].get("sha256")}
    for task in tasks:
        if task.array_id in ours and task.task_index is not None:
            yield settings[task.array_id], task.task_index


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

    with made_folder(run) as folder, hold_submission(run):
        where, done = read_progress(run, array.tasks, environ), list[Submitted]()
        parts, whole = list(replace(array, tasks=where.missing).parts(size)), len(where.missing)
        if len(parts) > 1 and array.max_parallel:
            raise ClusterError(
                f"--max-parallel holds for one array, and {whole} settings need {len(parts)} here "
                "(MaxArraySize); sweep over fewer, or leave it out"
            )
        claimed = partial(submit, change=change, force=force, environ=environ, notice=notice, is_claimed=True)
        for part in parts:
            try:
                done.append(claimed(msgspec.structs.replace(request, array=part), accepted=keep_folder))
            except ClusterError as error:
                if not done:
                    raise
                first = sum(len(part.tasks) for part in parts[: len(done)])
                raise ClusterError(f"{first} of {whole} settings are queued, then: {error}") from error
        return where, done
