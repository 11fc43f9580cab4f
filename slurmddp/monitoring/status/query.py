"""Queries the status of jobs: with few questions to Slurm, and from the runs' files where it is silent."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Final, cast

from slurmddp.monitoring.status.job_status import JobStatus, Progress, count_gpus, last_seen, read_progress
from slurmddp.monitoring.status.slurm_answers import FEW, Answers, RequestedJob
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs.allocations import Allocation, allocations_of, list_allocations
from slurmddp.runs.facts import Job, Run, judge_by_slurm, read_job, read_run
from slurmddp.runs.files import TAIL_BYTES
from slurmddp.runs.history import History, read_newest, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.runs.submissions import read_origin, settings_of, submissions
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobInfo, JobRef
from slurmddp.slurm.pending_reasons import explain
from slurmddp.slurm.states import find_state
from slurmddp.slurm.values import LATEST_START, parse_moment

MANY: Final = 100
"""For up to `FEW` jobs all events are read, for up to this many the last 64 KiB, for more the last 1 KiB."""
_LINES_BYTES: Final = 1024

_expand: Final = cache(try_expand)

Environ = Mapping[str, str]


def query_jobs(
    targets: Sequence[Target], environ: Environ, *, now: float | None = None, brief: bool = False
) -> list[JobStatus]:
    """Return the status of the targets' jobs, in their order; of an array, that of each task that Slurm lists.

    It takes one scontrol for a few jobs or one squeue for many, and one sacct. A `brief` status, for who asks again
    and again, has no progress and takes no scontrol, but for the exit status of a job that has failed.
    Raises nothing when Slurm fails: then the runs' files tell the state, or it is UNKNOWN.
    """
    grouped = query_targets(targets, environ, now=now, brief=brief)
    return [status for group in grouped for status in group]


def query_targets(
    targets: Sequence[Target], environ: Environ, *, now: float | None = None, brief: bool = False
) -> list[list[JobStatus]]:
    """Return what `query_jobs` returns, in a list for each target."""
    wanted = _requested_jobs(targets)
    answers = Answers([job for group in wanted for job in group], environ)
    answers.ask(brief=brief)
    histories = _RunHistories(jobs=len(answers.wanted), now=time.time() if now is None else now, brief=brief)

    def statuses(job: RequestedJob) -> list[JobStatus]:
        rows = [_from_row(job, row, answers, histories) for row in answers.rows[job]]
        return rows or [_from_files(job, answers, histories)]

    grouped = [[status for job in group for status in statuses(job)] for group in wanted]
    return [histories.add_totals(target.run, group) for target, group in zip(targets, grouped, strict=True)]


def read_facts(run: RunDir, statuses: Sequence[JobStatus], history: History | None = None) -> Run:
    """Return what happened in a run whose jobs have these statuses; `history` as for `read_run`."""
    answers = {one.job_id: one.slurm for one in statuses if one.slurm}
    return read_run(run, answers, silent=any(one.silence for one in statuses), history=history)


def read_runs(parts: Sequence[Target], environ: Environ) -> Iterator[Run]:
    """Yield what happened in each of very many runs: Slurm is asked once, of the jobs that have recorded no end.

    It is asked of cancelled ones too: to the ranks, a batch script that was ended by a signal looks the same.
    """
    runs, unended = [read_run(cast("RunDir", part.run), silent=True) for part in parts], list[Target]()
    for run, part in zip(runs, parts, strict=True):
        ends = {job.job_id: job.outcome for job in run.jobs}
        recorded = {job for job, end in ends.items() if end.final and end.kind is not Kind.CANCELLED}
        unended.append(part.only(tuple(job for job in part.jobs if job not in recorded)))
    for run, statuses in zip(runs, query_targets(unended, environ, brief=True), strict=True):
        yield read_facts(run.folder, statuses, run.history) if statuses else run


def last_submission(target: Target) -> Target:
    """Return the target with only the jobs of its run's last submission: one job and its chain; of a sweep all arrays.

    Each of a sweep's settings may be in another of them.
    """
    if len(target.jobs) == 1 or any(map(settings_of, target.records)):
        return target
    after = {record["job"]: str(record.get("after")) for record in target.records}
    jobs = target.jobs[-1:]
    while jobs and (before := after.get(jobs[0])) in target.jobs and before not in jobs:
        jobs = (str(before), *jobs)
    return target.only(jobs)


def _requested_jobs(targets: Sequence[Target]) -> list[list[RequestedJob]]:
    """Return the jobs of each target, with the records of their submission; those of a run are read once."""
    read = cache(submissions)

    def request(target: Target) -> list[RequestedJob]:
        run, ids = target.run, {job_id: JobRef.parse(job_id).array_id for job_id in target.jobs}
        if run is None:
            return [*map(RequestedJob, target.jobs)]
        home = run.sweep or run
        records = {record["job"]: record for record in target.known or read(home)}
        wanted = {number: records.get(number, {}) for number in ids.values()}
        told = {number: (parse_moment(one.get("time")), *read_origin(home, one)) for number, one in wanted.items()}
        return [RequestedJob(job_id, run, *told[ids[job_id]]) for job_id in target.jobs]

    return [*map(request, targets)]


class _RunHistories:
    """The runs' events; each file is read once. For how many `jobs` they are wanted decides how much is read."""

    def __init__(self, *, jobs: int, now: float, brief: bool) -> None:
        self.jobs, self.now, self.brief = jobs, now, brief
        self._read: dict[RunDir, History] = {}

    def read_job(self, run: RunDir, job_id: str, slurm: JobInfo | None, *, silent: bool) -> Job:
        """Return what happened to a job of a run."""
        if run not in self._read:
            few, some = self.jobs <= FEW and not self.brief, self.jobs <= MANY
            self._read[run] = read_outline(run) if few else read_newest(run, size=TAIL_BYTES if some else _LINES_BYTES)
        return read_job(run, job_id, slurm, silent=silent, history=self._read[run])

    def add_totals(self, run: RunDir | None, statuses: list[JobStatus]) -> list[JobStatus]:
        """Return statuses of a run with the time of all its starts up to their own, if its events are all known."""
        history = self._read.get(run) if run else None
        if run is None or self.brief or not (history and history.events and history.is_whole):
            return statuses
        allocations = list_allocations(read_facts(run, statuses, history), now=self.now)
        gpus = count_gpus(run)
        return [_add_total(one, allocations, gpus) for one in statuses]

    def read_progress(self, run: RunDir, job: Job) -> Progress | None:
        """Return how far a job is; of few jobs, also which records were left out."""
        if self.brief:
            return None
        progress = read_progress(run, job, now=self.now)
        return progress if self.jobs > FEW else progress._replace(damage=self._read[run].damage)


def _from_row(job: RequestedJob, row: JobInfo, answers: Answers, histories: _RunHistories) -> JobStatus:
    run, job_id = job.run, job.job_id if job.ref.is_task and row.ref.is_task_list else row.job_id
    facts = histories.read_job(run, job_id, row, silent=False) if run else None
    if run and facts and facts.outcome.kind is Kind.FAILED and facts.outcome.status is None:  # it has recorded nothing
        row = answers.add_exit_status(row)
        facts = histories.read_job(run, job_id, row, silent=False)
    outcome = facts.outcome if facts else judge_by_slurm(row)
    reason = "" if row.was_cancelled_in_queue else row.reason
    is_queued = row.phase == "queued"
    is_soon = row.started and row.started.timestamp() - histories.now < LATEST_START.total_seconds()
    seen = last_seen(run, facts) if run and facts and answers.queue.silence and not outcome.final else None
    return JobStatus(
        job_id=job_id,
        run=run,
        name=run.path.name if run and job.name else row.name,
        outcome=outcome,
        reason=reason,
        meaning=_meaning(outcome, reason, job_id, row),
        expected_start=row.started if is_queued and is_soon else None,  # later it is a guess
        submitted=job.submitted or row.submitted,  # Slurm's own time is that of the last requeue
        started=None if is_queued or row.was_cancelled_in_queue else row.started,
        ended=row.ended if row.has_ended else None,
        elapsed_s=row.elapsed_s,
        limit_s=row.limit_s,
        nodes=_expand(row.nodes) or (row.nodes,) if row.nodes else (),
        partition=row.partition,
        restarts=row.restarts,
        source=row.source,
        age_s=max(0.0, histories.now - seen) if seen else 0.0,
        silence=answers.queue.silence,
        progress=histories.read_progress(run, facts) if run and facts else None,
        slurm=row,
    )


def _add_total(status: JobStatus, allocations: Sequence[Allocation], gpus: int) -> JobStatus:
    ends = [end for end, one in enumerate(allocations, start=1) if one.job_id == status.job_id]
    if not ends:
        return status
    counted = allocations[: ends[-1]]
    total_s, hours = sum(one.end - one.begin for one in counted), sum(one.node_hours for one in counted)
    return status._replace(total_s=int(total_s), node_hours=hours, gpu_hours=hours * gpus or None)


def _from_files(job: RequestedJob, answers: Answers, histories: _RunHistories) -> JobStatus:
    silence = "" if job.ref.is_local else answers.queue.silence
    name = job.run.path.name if job.run else ""
    unknown = JobStatus(job_id=job.job_id, run=job.run, name=name, outcome=Outcome(kind=Kind.UNKNOWN), silence=silence)
    if job.run is None:
        return unknown._replace(meaning=silence or "Slurm knows no such job, and no run here has it")
    facts = histories.read_job(job.run, job.job_id, None, silent=bool(silence))
    if not job.name and (start := facts.history.last("attempt_start")):  # an executor's
        unknown = unknown._replace(name=start.text("job_name") or name)
    outcome, seen = facts.outcome, last_seen(job.run, facts)
    runs = job.ref.is_local and outcome.kind is Kind.RUNNING
    is_told = facts.history.is_whole and (runs or outcome.final)
    began = next((one.begin for one in reversed(allocations_of(facts, histories.now)) if is_told), None)
    meaning = outcome.reason
    if outcome.kind is Kind.UNKNOWN and not job.ref.is_local:
        meaning = silence or _unknown_reason(job, answers.names.get(job.ref.array_id, ""))
    return unknown._replace(
        outcome=outcome,
        submitted=job.submitted,
        started=_local_time(began),
        ended=_local_time(seen) if outcome.final else None,
        elapsed_s=int((histories.now if runs else seen or 0) - began) if began else None,
        meaning="" if outcome.kind is Kind.DONE else meaning,
        age_s=max(0.0, histories.now - seen) if seen else 0.0,
        progress=histories.read_progress(job.run, facts),
    )


def _local_time(time: float | None) -> datetime | None:
    return datetime.fromtimestamp(time).astimezone() if time else None


def _unknown_reason(job: RequestedJob, other: str) -> str:
    if job.elsewhere:
        return f"the job is that of {job.elsewhere}; this folder is a copy of it, or came from another file system"
    if other:
        return f"Slurm's job of this number is named {other}, not {job.name}: it is another one"
    return "Slurm no longer knows it, and its files do not tell how it ended"


def _meaning(outcome: Outcome, reason: str, job_id: str, row: JobInfo) -> str:
    """Return why a job waits, what it does, or why it ended, in words."""
    if outcome.final:
        return outcome.reason
    if row.preempted and row.state == "RUNNING":
        return "it is being preempted: it has its grace time to save in"
    stands = find_state(row.state).meaning.format(job=job_id)
    if stands or outcome.meaning.phase != "queued":
        return stands
    why = explain(reason, job_id)
    return "; ".join(part for part in (why.meaning, why.advice) if part)
