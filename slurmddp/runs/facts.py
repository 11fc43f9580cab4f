"""What happened in a run, as values: Run > Job > Attempt, each with its outcome.

One pass over the run's folder; what Slurm says of the jobs is handed in. Every view reads these values. Records that
were cut off or are wrong are left out. At the end, how a run is resumed: the command to type, and what its next job
finds. Slurm is not asked; standard library only.
"""

from __future__ import annotations
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from slurmddp import exit_codes
from slurmddp.outcome import MEANINGS, SCRIPT_KILLED, Kind, Outcome, kind_of_status
from slurmddp.runs.checkpoints import find_newest_saved
from slurmddp.runs.exit_records import NO_RANK, ExitRecord, decisive_record, read_record, read_records
from slurmddp.runs.history import SUPERVISION, AttemptEvents, Event, History, describe_stop, read_newest, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import READ_BYTES, GrowingFile, file_size
from slurmddp.runs.ownership import attempt_order, is_running_here
from slurmddp.runs.submissions import settings_of, submissions
from slurmddp.slurm import states
from slurmddp.slurm.job_info import LOCAL, JobInfo, JobRef, is_job_id

BY_SLURM: Final = "not by the job itself: by `scontrol requeue`, a preemption without grace time, or a lost node"
"""Why a job came back of which no event says so."""
PREEMPTED: Final = "it is done; Slurm counts it as preempted, because it ended within its grace time"

_ENDS: Final = ("attempt_end", "restart", "end", "requeue", "fenced", "job_end")
"""The events that say how an attempt ended, the best first: the supervisor's, then that of rank 0."""
_STATUSES: Final = {"requeue": exit_codes.STOPPED, "fenced": exit_codes.FENCED}
"""Of those which have none on record."""
_GOES_ON: Final = frozenset({"attempt_start", "requeue"})
_CANCELLED: Final = re.compile(rb"\*\*\* JOB [0-9]+ ON \S+ CANCELLED AT \S+ (DUE to SIGNAL \w+ )?\*\*\*")
"""What slurmstepd writes at `scancel`: for a requeue, a preemption and the time limit it has other words."""
_AT_ONCE_S: Final = 60.0
_WITHOUT_SLURM: Final = re.compile(rf"{LOCAL}[0-9]+(-[0-9]+)*|manual")
"""The ids of runs on this machine, and that of the launcher `manual`."""
_SHELL_OFFSET: Final = 128
"""A shell's exit status for a command that a signal ended is this plus the number of the signal."""
_OF_SIGNALS: Final = range(_SHELL_OFFSET + 1, _SHELL_OFFSET + 65)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of a job's ranks."""

    job_id: str
    name: str
    """`<SLURM_RESTART_COUNT>.<n>`; n counts the starts in one allocation."""
    outcome: Outcome
    events: AttemptEvents
    left: float
    """When it was seen last, in seconds since 1970: by its events, or by the next return of its job to the queue."""

    @property
    def hosts(self) -> str:
        """The host list of its nodes; empty if it is not known."""
        start = self.events.last("attempt_start")
        return start.text("nodes") if start else ""


class Job(NamedTuple):
    """One job of a run."""

    job_id: str
    outcome: Outcome
    history: History
    """The job's own events."""
    attempts: tuple[Attempt, ...] = ()
    """Those that have events, the oldest first."""
    slurm: JobInfo | None = None
    """What Slurm says of it; None when Slurm does not know it, or did not answer."""

    @property
    def restarts(self) -> tuple[tuple[float, str], ...]:
        """The starts of its ranks again in the same allocation, the oldest first: when, and why."""
        return tuple((event.time, event.text("reason")) for event in self.history.all("restart"))

    @property
    def requeues(self) -> tuple[tuple[float, str], ...]:
        """Its returns to the queue, also those that only a later start shows, the oldest first: when, and why."""
        ends = [_of_event(event) for event in self.history.all("requeue")]
        left = self.attempts if self.outcome.kind is Kind.PENDING else self.attempts[:-1]
        untold = [one.outcome for one in left if not one.events.last("requeue")]
        ends += [end for end in untold if end.kind in (Kind.REQUEUED, Kind.STOPPED)]
        return tuple(sorted((end.time or 0.0, end.reason) for end in ends))


class Run(NamedTuple):
    """A run, as far as its records and Slurm say."""

    folder: RunDir
    jobs: tuple[Job, ...]
    """In the order of their first event; those without events follow in the order of their submission."""
    history: History
    """All its events, or the newest of them."""


def read_run(
    folder: RunDir,
    answers: Mapping[str, JobInfo] | None = None,
    *,
    silent: bool = False,
    history: History | None = None,
) -> Run:
    """Return what happened in a run.

    `answers` is what Slurm says of its jobs; `silent`, that Slurm did not answer: a job that it does not name may still
    run. `history` are the run's events if they are known already, or the newest of them.
    """
    events, known = history or read_outline(folder), answers or {}
    submitted = (record["job"] for record in submissions(folder) if not settings_of(record))
    ids = dict.fromkeys([*(event.job for event in events.events if event.job), *submitted, *known])
    jobs = tuple(
        read_job(folder, job_id, known.get(job_id), silent=silent, history=events)
        for job_id in ids
        if is_job_id(job_id) or _WITHOUT_SLURM.fullmatch(job_id)
    )
    return Run(folder=folder, jobs=jobs, history=events)


def read_job(
    folder: RunDir, job_id: str, slurm: JobInfo | None = None, *, silent: bool = False, history: History | None = None
) -> Job:
    """Return what happened to one job of a run; `slurm`, `silent` and `history` as for `read_run`."""
    own = (history or read_newest(folder)).of_job(job_id)
    if not JobRef.parse(job_id).is_local:
        outcome = _judge(folder, own, job_id, slurm, silent=silent)
    elif is_running_here(folder.owner, job_id):
        outcome = Outcome(kind=Kind.RUNNING)
    else:
        unknown = "it does not run on this machine, and no rank left a record of its end"
        recorded = _last_attempt(folder, job_id) or _recorded_end(folder, own, job_id)[0]
        outcome = recorded or Outcome(kind=Kind.UNKNOWN, reason=unknown)
    starts = own.attempts
    queued = [max((start.number("queued") or 0.0 for start in one.all("attempt_start")), default=0.0) for one in starts]
    returns = [*queued[1:], slurm.submitted.timestamp() if slurm and slurm.submitted else 0.0]
    left = [max(one.seen, returned) for one, returned in zip(starts, returns)]
    attempts = tuple(
        Attempt(job_id=job_id, name=one.name, events=one, outcome=_judge_attempt(one, starts[-1], outcome, at), left=at)
        for one, at in zip(starts, left)
    )
    return Job(job_id=job_id, outcome=outcome, history=own, attempts=attempts, slurm=slurm)


def is_finished(folder: RunDir, job_id: str = "") -> bool:
    """Return whether the last job of the run that has started, or one job, ended well, by its last event."""
    own = [event for event in read_newest(folder).events if event.attempt and job_id in ("", event.job)]
    return any(event.number("status") == exit_codes.DONE for event in own[-1:])


def failed_at_once(folder: RunDir) -> bool:
    """Return whether each start of the run's ranks failed for good within a minute, before the first step."""
    history = read_outline(folder)
    ends = [(one.began, end) for one in history.attempts if (end := one.last("attempt_end"))]
    took = [end.time - began for began, end in ends if _of_event(end).kind is Kind.FAILED]
    is_short = 0 < len(took) == len(history.attempts) and max(took) < _AT_ONCE_S
    return is_short and not any(map(history.last, ("loop", "metrics", "checkpoint")))


def set_up_failure(folder: RunDir, job_id: str, events: Sequence[Event]) -> ExitRecord | None:
    """Return how a set-up line failed; None when none did, or when the job has a newer event."""
    record = read_record(folder.batch_record(job_id), NO_RANK)
    return record if record and all(event.time <= record.time for event in events[-1:]) else None


def _judge(folder: RunDir, own: History, job_id: str, slurm: JobInfo | None, *, silent: bool) -> Outcome:
    """Return what a job of Slurm has come to: what Slurm says, and of a failure what the job has recorded."""
    if slurm is None:
        return _judge_by_files(folder, own, job_id, gone=not silent)
    said = judge_by_slurm(slurm)
    if said.kind is Kind.CANCELLED:
        return said._replace(reason=_cancellation(own.decision()) or said.reason)
    if said.kind not in (Kind.STOPPED, Kind.TIME_LIMIT) and slurm.state != "FAILED":
        return said
    recorded = _judge_by_files(folder, own, job_id, gone=True)
    if said.state == "FAILED":
        weaker = (Kind.STOPPED, Kind.FENCED, Kind.KILLED) if said.kind is Kind.KILLED else ()
        knows = recorded.final and recorded.kind not in (Kind.DONE, Kind.CANCELLED, *weaker)
        end = recorded if said.status is None else recorded._replace(status=said.status, signal=said.signal)
        return end._replace(state=said.state, time=end.time or said.time) if knows else said
    is_preempted, is_same = said.kind is Kind.STOPPED, recorded.kind is said.kind
    # its script may have run on for long after the launch that was done, until the time limit
    if recorded.kind is Kind.DONE and (is_preempted or (recorded.time or 0.0) > (said.time or 0.0) - _AT_ONCE_S):
        reason = PREEMPTED if is_preempted else recorded.reason
        return recorded._replace(state=MEANINGS[Kind.DONE].word, reason=reason)
    end = said._replace(status=recorded.status, reason=recorded.reason if is_same else said.reason)
    return end if is_preempted else said


def judge_by_slurm(slurm: JobInfo) -> Outcome:
    """Return what a job has come to by Slurm's answer alone: of a failure, by the status of its batch script."""
    said = states.outcome_of(slurm.state)
    if said.final:
        ended = slurm.ended.timestamp() if slurm.ended else None
        said = said._replace(reason=states.find_state(slurm.state).meaning.format(job=slurm.job_id), time=ended)
    if slurm.state != "FAILED" or not slurm.exit_status:
        return said
    first, _, second = slurm.exit_status.partition(":")
    status, signal = (int(part) if part.isdecimal() else 0 for part in (first, second))
    signal = signal or (status - _SHELL_OFFSET if status in _OF_SIGNALS else 0)
    said = said._replace(status=status, signal=signal if not status else 0)
    return said._replace(kind=Kind.KILLED, reason=f"{SCRIPT_KILLED} {signal}") if signal else said


def _judge_by_files(folder: RunDir, own: History, job_id: str, *, gone: bool) -> Outcome:
    """Return what a job has come to by its own records alone.

    `gone` says that Slurm does not know it any more: it has ended. Else it may continue after an attempt.
    """
    if cancelled := _cancellation(own.decision()):
        return Outcome(kind=Kind.CANCELLED, reason=cancelled)
    end, is_final = _recorded_end(folder, own, job_id)
    if end and (is_final or gone):  # a script of the user's own may end with another status than its launch
        return end._replace(status=None) if folder.training_marks.exists() else end
    if own.events and not gone:
        return Outcome(kind=Kind.PENDING if own.events[-1].kind == "requeue" else Kind.RUNNING)
    log, starts = folder.batch_log(job_id), [part.begin for part in own.log_parts().values()]
    part = GrowingFile(log, max(file_size(log) - READ_BYTES, *starts[-1:], 0))
    is_cancelled = any(map(_CANCELLED.search, part.read_lines(rest=True)))
    return Outcome(kind=Kind.CANCELLED, reason="cancelled") if is_cancelled else Outcome(kind=Kind.UNKNOWN)


def _recorded_end(folder: RunDir, own: History, job_id: str) -> tuple[Outcome | None, bool]:
    """Return how a job or its last attempt ended, and whether that was the end of the job.

    Without events of a supervisor, that of rank 0 or the records of the ranks tell.
    """
    supervision = own.supervision
    if record := set_up_failure(folder, job_id, supervision):
        return Outcome(kind=Kind.FAILED, status=record.status, reason=record.reason, time=record.time), True
    if event := last_end(supervision):
        return _of_event(event), event.kind != "attempt_end"
    if supervision:
        return None, False
    by_rank_0 = next((_of_event(last) for last in own.events[-1:] if last.kind == "end"), None)
    outcome = _last_attempt(folder, job_id) if folder.attempts(job_id) else by_rank_0
    return outcome, outcome is not None and outcome.kind in (Kind.DONE, Kind.FAILED, Kind.FENCED)


def last_end(events: Sequence[Event]) -> Event | None:
    """Return the last event that can be a job's end; None when the job continued after it.

    An event of an earlier attempt, for example on a disconnected node, does not end the job.
    """
    end: Event | None = None
    newest: list[int] = []
    for event in events:
        if event.kind not in SUPERVISION or attempt_order(event.attempt) < newest:
            continue
        if event.kind == "attempt_start":
            newest = attempt_order(event.attempt)
        end = None if event.kind in _GOES_ON else event
    return end


def _last_attempt(folder: RunDir, job_id: str) -> Outcome | None:
    names = folder.attempts(job_id)
    record = decisive_record(read_records(folder.attempt(job_id, names[-1]))) if names else None
    return record.outcome if record else None


def _judge_attempt(attempt: AttemptEvents, last: AttemptEvents, job: Outcome, left: float) -> Outcome:
    """Return how an attempt ended: by its events; else by what came after it, or by the job's outcome."""
    end = next((event for kind in _ENDS if (event := attempt.last(kind))), None)
    is_of_last_start = last.name.partition(".")[0] == attempt.name.partition(".")[0]
    is_back = not is_of_last_start or (last is attempt and job.kind is Kind.PENDING)
    by_slurm = is_back or (last is attempt and job.kind is Kind.CANCELLED)
    if end and not (by_slurm and end.kind == "end" and _of_event(end).kind is Kind.CRASHED):
        return _of_event(end)
    if attempt.last("cancel"):
        return Outcome(kind=Kind.CANCELLED, time=left)
    if is_back:
        told = attempt.last("notice")
        why = describe_stop(told) if told else end.text("reason") if end else BY_SLURM
        return Outcome(kind=Kind.REQUEUED, time=left, reason=why)
    if last is not attempt or job.kind in (Kind.UNKNOWN, Kind.DONE, Kind.FENCED):
        return Outcome(kind=Kind.KILLED, time=left)
    return job._replace(time=job.time or left)


def _of_event(event: Event) -> Outcome:
    """Return the outcome that an event of `_ENDS` tells."""
    status = _STATUSES.get(event.kind, event.count("status") if "status" in event.fields else None)
    kind, reason = Kind.CRASHED if status is None else kind_of_status(status), event.text("reason")
    if kind is Kind.FENCED and reason.startswith(SCRIPT_KILLED):
        kind, status = Kind.KILLED, None
    return Outcome(kind=kind, status=status, reason=reason, time=event.time)


def _cancellation(last: Event | None) -> str:
    """Return how a job was cancelled; empty when something other than the ranks' end is on record after that."""
    if last and last.kind == "cancel":
        return f"cancelled by `slurmddp cancel` ({last.text('by')})"
    return "cancelled" if last and last.kind == "notice" and last.text("reason") == "cancelled" else ""


def is_resumable(run: RunDir) -> bool:
    """Return whether slurmddp has submitted the run as one job, so that its folder says how it is submitted again."""
    return run.spec.is_file() and not any(map(settings_of, submissions(run)))


def resume_command(run: RunDir) -> str:
    """Return the command that submits the run's next job, from any folder."""
    return shlex.join(["slurmddp", "submit", str(run.spec)])


def find_state(run: RunDir) -> str:
    """Return the checkpoint that the next job finds, as in `the checkpoint of step 20`; empty if none is known."""
    saved = find_newest_saved(run, read_newest(run).checkpoint_glob)
    which = saved and (saved.path if saved.step is None else f"of step {saved.step}")
    return f"the checkpoint {which}" if which else ""


def describe_resume(run: RunDir) -> str:
    """Return what to type so that the run goes on, and where it goes on then."""
    state = find_state(run)
    then = f"continues from {state}" if state else "starts COMMAND again, which must find its own checkpoint"
    return f"{resume_command(run)} ({then})"
