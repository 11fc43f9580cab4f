"""The settings of a sweep that are not done yet, into the queue: one array, or as few as the cluster allows."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from slurmddp.cluster import Cluster
from slurmddp.cluster.request import Request
from slurmddp.config.job_array import Array, Task, folder
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.history import is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import settings_of, submissions
from slurmddp.script.build import script
from slurmddp.slurm import queries
from slurmddp.slurm.client import LostAnswerError
from slurmddp.submission.sbatch import Notice, Submitted
from slurmddp.submission.submit import submit


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How far the settings of a sweep are."""

    done: tuple[Task, ...]
    queued: tuple[Task, ...]
    """Those that wait or run."""
    missing: tuple[Task, ...]


def standing(run: RunDir, tasks: Sequence[Task], environ: Mapping[str, str]) -> Standing:
    """Tell which tasks are done, by their runs' own events, and which are in the queue, by Slurm.

    Raises ClusterError when the controller does not answer.
    """
    busy = _busy(run, environ)
    done = {task.folder for task in tasks if is_finished(RunDir(run.path / task.folder))}
    return Standing(
        done=tuple(task for task in tasks if task.folder in done),
        queued=tuple(task for task in tasks if task.folder in busy - done),
        missing=tuple(task for task in tasks if task.folder not in done | busy),
    )


def arrays(run: RunDir, environ: Mapping[str, str]) -> set[str]:
    """Return the arrays of a sweep of which a task waits or runs, none of another run.

    Raises ClusterError when the controller does not answer.
    """
    return {record["job"] for record, _ in _queued(run, environ)}


def _busy(run: RunDir, environ: Mapping[str, str]) -> set[str]:
    return {folder(record["settings"][index]) for record, index in _queued(run, environ)}


def _queued(run: RunDir, environ: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the tasks that wait or run by their submission, told by their script from others of the same number."""
    settings = {record["job"]: record for record in submissions(run) if settings_of(record)}
    known = queries.jobs(list(settings), environ) if settings else []
    tasks = [job.job_id.split("_") for job in known if not job.has_ended and re.fullmatch(r"\d+_\d+", job.job_id)]
    numbers = {number for number, _ in tasks}
    ours = {number for number in numbers if queries.script_digest(number, environ) == settings[number].get("sha256")}
    yield from ((settings[number], int(index)) for number, index in tasks if number in ours)


def sweep(
    request: Request,
    *,
    change: bool,
    force: bool,
    environ: Mapping[str, str],
    notice: Notice,
    accepted: Callable[[Submitted], None],
) -> tuple[Standing, list[Submitted]]:
    """Submit the tasks of the request's array that are neither done nor in the queue; return what was, and the jobs.

    Nobody else submits for the sweep from the look to the last job. Slurm's arrays have at most MaxArraySize tasks,
    and scripts a largest size: more than that are several. `accepted` hears of each at once. Raises UsageError and
    ClusterError as `submit` does, with how much was queued before.
    """
    array, job = request.array, request.resolved.spec
    if array is None:
        raise UsageError("there is nothing to sweep over; give --set KEY=VALUE,...")
    run = RunDir.named(job.runs_dir, job.job_name)

    def one(part: Array) -> Submitted:
        return submit(
            msgspec.structs.replace(request, array=part),
            change=change,
            force=force,
            environ=environ,
            notice=notice,
            is_claimed=True,
            accepted=accepted,
        )

    with _claimed(run):
        where = standing(run, array.tasks, environ)
        parts = list(_parts(request, replace(array, tasks=where.missing))) if where.missing else []
        return where, _all_submitted(parts, one)


@contextmanager
def _claimed(run: RunDir) -> Iterator[None]:
    """Hold the run, and take its folder back when it was made for a sweep that is refused."""
    created = run.create()
    try:
        with run.claimed():
            yield
    except LostAnswerError:
        raise
    except BaseException:
        if created and not submissions(run):
            run.remove_unused(created)
        raise


def _all_submitted(parts: Sequence[Array], one: Callable[[Array], Submitted]) -> list[Submitted]:
    count = sum(len(part.tasks) for part in parts)
    if len(parts) > 1 and parts[0].max_parallel:
        raise ClusterError(
            f"--max-parallel holds for one array, and {count} settings need {len(parts)} here "
            "(MaxArraySize, max_script_size); sweep over fewer, or leave it out"
        )
    done: list[Submitted] = []
    for part in parts:
        try:
            done.append(one(part))
        except ClusterError as error:
            if not done:
                raise
            first = sum(len(part.tasks) for part in parts[: len(done)])
            raise ClusterError(f"{first} of {count} settings are queued, then: {error}") from error
    return done


def _parts(request: Request, array: Array) -> Iterator[Array]:
    """Yield the arrays that the cluster takes, as few as need be."""
    cluster = request.cluster or Cluster()
    size = min(cluster.max_array_size, len(array.tasks))
    while size > 1 and any(
        len(script(request.resolved.spec, array=part)) > cluster.max_script_bytes for part in array.parts(size)
    ):
        size = -(-size // 2)
    yield from array.parts(size)
