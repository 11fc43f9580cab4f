"""Chooses the run of a job that was given no name: that with the same program, else a new one. Writes nothing."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from slurmddp.cluster.request import Request
from slurmddp.config.resolve import DERIVED_NAMES
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.facts import find_state, is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submitted_at
from slurmddp.script.build import check_program
from slurmddp.slurm.pending_reasons import never_starts
from slurmddp.submission.compatibility import active_jobs, find_change, find_other_kind, has_begun
from slurmddp.submission.submit_once import Notice

Ask = Callable[[UsageError], None]


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
    if ask is None:
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
    newest = max(others, key=submitted_at)
    if not run.spec.exists() and (state := _state_at_stake(newest, request, environ)):
        change = others[newest].removeprefix("has ")
        question = UsageError(
            f"run {newest.path.name} has {state}, and was started with {change}; type --continue to go on from "
            f"there with the new one, or --name {run.path.name} to begin another run"
        )
        if ask is None:
            raise question
        ask(question)
    replaced = ", whose job never started" if find_change(run, request.resolved) else ""
    first = next(iter(others))
    shown = first if others[first] == others[newest] else newest
    this = "this sweep" if request.array else "this"
    state = find_state(shown) if others[shown].startswith("has ") and not request.array else ""
    instead = f"; to continue {shown.path.name} from {state}: --name {shown.path.name} --continue" if state else ""
    notice(f"run {shown.path.name} {others[shown]}; {this} is run {run.path.name}{replaced}{instead}")
    return msgspec.structs.replace(request, resolved=request.resolved.replace(origin, job_name=run.path.name))


def _why_not(run: RunDir, request: Request, environ: Mapping[str, str]) -> str:
    """Return why the run cannot take the job; empty when it can, also when none of its jobs has started any rank."""
    if other := find_other_kind(request, run):
        return f"is {other} already"
    change = find_change(run, request.resolved)
    if not change or has_begun(run):
        return change and f"has {change}"
    with suppress(ClusterError):
        for job in active_jobs(run, environ):
            if not never_starts(job.reason):
                return f"has {change}, and job {job.job_id} in the queue"
    return ""


def _state_at_stake(run: RunDir, request: Request, environ: Mapping[str, str]) -> str:
    """Return from where the run could go on; empty when it is finished, has no checkpoint, or has a job."""
    if request.array or find_other_kind(request, run) or is_finished(run):
        return ""
    with suppress(ClusterError):
        if active_jobs(run, environ):
            return ""
    return find_state(run)
