"""Whether a run can take another job: the same program, the same kind of job, and no job that is still active.

For a job without a name, also which run takes it. Writes nothing.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec

from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.config.command import parse
from slurmddp.config.job_files import read_job_file
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import DERIVED_NAMES, Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.facts import failed_at_once, find_state, is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import last_time, read_origin, settings_of, submissions
from slurmddp.script.build import build_script, check_program
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.pending_reasons import explain, never_starts
from slurmddp.submission.submit_once import Notice
from slurmddp.text import escape_text, mask_secrets, quote_value
from slurmddp.version import __version__

_RECENT_JOBS: Final = 20
"""So many of a run's last jobs are looked up in the queue."""

Ask = Callable[[UsageError], None]


def check_same(run: RunDir, resolved: Resolved, *, instead: str = "type --continue to go on with the new one") -> None:
    """Refuse to mix two programs in one run; raises UsageError with what differs, and what to do `instead`."""
    if has_begun(run) and (change := find_change(run, resolved)):
        raise UsageError(f"run {run.path.name} was started with {change}; choose another --name, or {instead}")


def has_begun(run: RunDir) -> bool:
    """Return whether ranks have started, and did not fail at once, or may at any time, as those of a sweep may."""
    return any(map(settings_of, submissions(run)[-1:])) or (run.has_started and not failed_at_once(run))


def find_change(run: RunDir, resolved: Resolved) -> str:
    """Return how the program differs from that of the run; empty when it does not, and for a run without a job.

    The program of a job whose script was passed to sbatch directly is known only if the script is that of the job
    before it, or the one that would be submitted now. Raises UsageError when the record of the run is damaged.
    """
    *before_last, last = submissions(run) or [{}]
    if last.get("by_hand"):
        script = build_script(resolved.replace("the run", job_name=run.path.name).spec)
        if last["sha256"] == hashlib.sha256(script.text).hexdigest():
            return ""
        known = next((record.get("sha256") for record in reversed(before_last) if not record.get("by_hand")), None)
        if last["sha256"] != known:
            return f"another command, that of job {last['job']}, whose script was passed to sbatch directly"
    if not run.spec.exists():
        return ""
    advice = f"it is the record of run {run.path.name}: choose another --name"
    if not run.spec.is_file() or not run.spec.stat().st_size:
        raise UsageError(f"{run.spec} is {'empty' if run.spec.is_file() else 'not a regular file'}; {advice}")
    try:
        before = _program(dict(read_job_file(run.spec).table))
    except UsageError as error:
        raise UsageError(f"{error}; {advice}") from error
    now = _program(resolve.build_record(resolved, directory=str(Path.cwd()), version=__version__))
    changed = (key for key in ("command", "worker") if before.get(key) != now.get(key))
    return next((f"another {key}: {difference(before.get(key), now.get(key))}" for key in changed), "")


def check_kind(request: Request, run: RunDir) -> None:
    """Raise UsageError when a sweep is to go on with a run of one job, or the other way round."""
    if kind := find_other_kind(request, run):
        instead = "" if request.array else ", or continue it by `slurmddp sweep`"
        raise UsageError(f"run {run.path.name} is {kind}; choose another --name{instead}")


def find_other_kind(request: Request, run: RunDir) -> str:
    """Return what the run is, when it is a sweep and the request is not, or the other way round; else empty."""
    for last in submissions(run)[-1:]:
        if ("settings" in last) != (request.array is not None or request.resolved.spec.is_array):
            return "an array" if "indices" in last else "a sweep" if "settings" in last else "a single job"
    return ""


def check_idle(request: Request, run: RunDir, environ: Mapping[str, str]) -> None:
    """Raise UsageError when another job of the run is queued or running, unless the new job depends on that one.

    A sweep is not checked: its tasks are only those settings that have no job.
    """
    spec = request.resolved.spec
    if request.array or spec.dependency == "singleton":
        return
    awaited = re.findall(r"\d+(?:_\d+)?", spec.dependency or "")
    holders = [one for one in active_jobs(run, environ, spec) if not {one.job_id, one.number}.intersection(awaited)]
    for job in holders:
        several = sum(one.number == job.number for one in holders)
        name = job.number if several > 1 else job.job_id
        holder = f"run {run.path.name} belongs to job {name}, which"
        if job.state == "PENDING" and never_starts(job.reason):
            why = explain(job.reason).meaning
            raise UsageError(f"{holder} can never start ({why}); type: slurmddp cancel {name}")
        state = f"is {job.state}" if several == 1 else f"has {several} of these tasks queued or running"
        advice = f"wait for it, cancel it with `slurmddp cancel {name}`, or choose another --name"
        raise UsageError(f"{holder} {state}; {advice}")


def active_jobs(run: RunDir, environ: Mapping[str, str], spec: JobSpec) -> list[JobInfo]:
    """Return the run's jobs that are queued or running; of a script's own array, the tasks that this one has, too.

    A copy of a run's folder has none of the original's jobs. Raises as `find_active`.
    """
    recent = (record for record in submissions(run)[-_RECENT_JOBS:] if not read_origin(run, record).elsewhere)
    tasks = spec.script.tasks if spec.script else ()
    return [job for job in find_active(recent, environ) if not job.ref.suffix or job.ref.task_index in tasks]


def find_active(records: Iterable[Mapping[str, Any]], environ: Mapping[str, str]) -> list[JobInfo]:
    """Return the queued and running jobs of these records, of an array its tasks.

    Slurm may give a job number again: only a job with the script on record counts. Raises ClusterError when the
    controller does not answer.
    """
    digests = {record["job"]: record.get("sha256") for record in records}
    known = queries.jobs(list(digests), environ) if digests else []
    active = [job for job in known if not job.has_ended and job.number in digests]
    numbers = {job.number for job in active}
    own = {number for number in numbers if queries.script_digest(number, environ) == digests[number]}
    return [job for job in active if job.number in own]


def choose_run(request: Request, environ: Mapping[str, str], notice: Notice, *, ask: Ask | None = None) -> Request:
    """Return the request with the name of its run: `train`, or `train-2` when `train` has another program.

    A name that was given stays. `notice` gets why the name is another one. When the newest of the runs with another
    program could be continued from a checkpoint, only the user knows what is meant: `ask` gets the question as an
    error, which is raised without `ask`.
    """
    spec = request.resolved.spec
    origin = request.resolved.origins["job_name"]
    if origin not in DERIVED_NAMES or spec.reset:
        return request
    for program in request.programs:  # a misspelled COMMAND is not another program of the run
        check_program(program)
    others: dict[RunDir, str] = {}
    """Why they cannot take the job, as what the run is or has."""
    run = RunDir.named(spec.runs_dir, spec.job_name)
    while why := _why_not(run, request, environ):
        others[run] = why
        run = RunDir.named(spec.runs_dir, f"{spec.job_name[:58]}-{len(others) + 1}")
    if not others:
        return request
    newest = max(others, key=lambda run: last_time(submissions(run)))
    if not run.spec.exists() and (state := _state_at_stake(newest, request, environ)):
        change = others[newest].removeprefix("has ")
        question = UsageError(
            f"run {newest.path.name} has {state}, and was started with {change}; type --continue to go on from "
            f"there with the new one, or --name {run.path.name} to begin another run"
        )
        if ask is None:
            raise question
        ask(question)
    replaced = ", which has trained nothing yet" if find_change(run, request.resolved) else ""
    first = next(iter(others))
    shown = first if others[first] == others[newest] else newest
    this = "this sweep" if request.array else "this"
    state = find_state(shown) if others[shown].startswith("has ") and not request.array else ""
    instead = f"; to continue {shown.path.name} from {state}: --name {shown.path.name} --continue" if state else ""
    is_again = run.spec.exists() and not replaced
    why = "" if is_again else f"run {shown.path.name} {others[shown]}; "
    notice(f"{why}{this} is run {run.path.name}{replaced}{'' if is_again else instead}")
    return msgspec.structs.replace(request, resolved=request.resolved.replace(origin, job_name=run.path.name))


def _why_not(run: RunDir, request: Request, environ: Mapping[str, str]) -> str:
    """Return why the run cannot take the job; empty when it can, also when none of its jobs has started any rank."""
    if other := find_other_kind(request, run):
        return f"is {other} already"
    change = find_change(run, request.resolved)
    if not change or has_begun(run):
        return change and f"has {change}"
    with suppress(ClusterError):
        for job in active_jobs(run, environ, request.resolved.spec):
            if not never_starts(job.reason):
                return f"has {change}, and job {job.job_id} in the queue"
    return ""


def _state_at_stake(run: RunDir, request: Request, environ: Mapping[str, str]) -> str:
    """Return from where the run could go on; empty when it is finished, has no checkpoint, or has a job."""
    if request.array or find_other_kind(request, run) or is_finished(run):
        return ""
    with suppress(ClusterError):
        if active_jobs(run, environ, request.resolved.spec):
            return ""
    return find_state(run)


def difference(before: Any, now: Any) -> str:
    """Return how a recorded command, or the worker's table, has changed; what looks like a secret is masked."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} {quote_value(before.get(key))} became {quote_value(now.get(key))}" for key in keys)
    first, second = _words(before), _words(now)
    start = _common_length(first, second)
    end = _common_length(first[start:][::-1], second[start:][::-1])
    start -= start > 0 and first[start - 1].startswith("-")  # the option before a value stays with it
    old, new = first[start : len(first) - end], second[start : len(second) - end]
    if not (old and new):
        return f"{_format_words(new)} was added" if new else f"{_format_words(old)} was left out"
    return f"{_format_words(old)} became {_format_words(new)}"


def _words(command: Any) -> list[str]:
    return list(map(str, mask_secrets(list(command)))) if command else []


def _common_length(before: list[str], now: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))


def _format_words(words: Sequence[str]) -> str:
    """Return words, already without secrets, as one quoted text."""
    return f"'{escape_text(' '.join(words))}'"


def _program(table: dict[str, Any]) -> dict[str, Any]:
    """Return a job's table with the full path of its script, which does not depend on the working directory."""
    words = table.get("command", [])
    place = parse(tuple(words), executable=bool(table.get("no-python"))).path_place
    if place is None:
        return table
    return table | {"command": [*words[:place], str(Path.cwd() / words[place]), *words[place + 1 :]]}
