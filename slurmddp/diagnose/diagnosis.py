"""One job, from what Slurm says of it and what its files hold to the diagnosis. Asks Slurm; reads files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from slurmddp.diagnose import log_evidence, run_evidence, slurm_facts
from slurmddp.diagnose.evidence import Scene
from slurmddp.diagnose.job_states import rule_of
from slurmddp.diagnose.model import NONE, UNKNOWN, Diagnosis, Line
from slurmddp.diagnose.verdict import judge
from slurmddp.errors import ClusterError
from slurmddp.runs import history
from slurmddp.runs.history import Event
from slurmddp.runs.layout import LOCAL, RunDir
from slurmddp.runs.supervision import read_supervision, set_up_failure
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.pending_reasons import explain

BEFORE: Final = 3
"""Of how many earlier starts of the ranks it is told what they ended of."""
_OF_SLURM: Final = frozenset(
    {"time-limit", "preempted", "requeued", "cancelled", "node-lost", UNKNOWN, "gave-up", "interrupted"}
)
"""Causes that Slurm's own state tells better than a line of a log: SIGINT may be the signal that --signal asked for."""


def diagnose(run: RunDir | None, job_id: str, environ: Mapping[str, str]) -> Diagnosis:
    """Return why a job failed; or that it did not, waits, or runs, with what its earlier starts ended of.

    Raises ClusterError when Slurm does not answer, or does not know the job, and there are no files of it.
    """
    known, silence = (
        (slurm_facts.of_files(job_id), "") if job_id.startswith(LOCAL) else slurm_facts.ask(job_id, environ)
    )
    if run is not None and known.name not in ("", run.job_name):
        known, silence = slurm_facts.of_files(job_id), f"job {job_id} is now another's: {known.name}"
    job_id, name = known.job_id, run.path.name if run else ""
    if run and (task := _task(run, job_id)):
        run, name = task, f"{name}/{task.path.name}"
    if known.source == "files" and not (run and _has_files(run, job_id)):
        raise ClusterError(f"job {job_id}: {silence or 'Slurm does not know it'}, and {_lacking(run, job_id)}")
    return _Case(run, known._replace(name=name or known.name or job_id), silence, environ).diagnosis()


def of_attempt(run: RunDir, job_id: str, attempt: str, events: Sequence[Event]) -> Diagnosis:
    """Return why one start of a job's ranks ended, by its files alone; `events` are the job's. Slurm is not asked."""
    known = slurm_facts.of_files(job_id)._replace(name=run.path.name)
    return judge(known, run_evidence.scene(run, job_id, attempt, events))


def _task(run: RunDir, job_id: str) -> RunDir | None:
    """Return the run of one setting of a sweep, which lies in the sweep's folder; None where the job is of no array."""
    found = next(run.path.glob(f"*/logs/{job_id}.out"), None) if "_" in job_id else None
    return RunDir(found.parent.parent) if found else None


def _has_files(run: RunDir, job_id: str) -> bool:
    return run.batch_log(job_id).exists() or bool(run.attempts(job_id))


def _lacking(run: RunDir | None, job_id: str) -> str:
    task = next((path.stem for path in run.path.glob(f"*/logs/{job_id}_*.out")), "") if run else ""
    return (
        f"it is a sweep's: name a setting, or one of its tasks, as {task}" if task else "there are no files of it here"
    )


class _Case:
    """One job under examination."""

    def __init__(self, run: RunDir | None, job: JobInfo, silence: str, environ: Mapping[str, str]) -> None:
        self._run, self._id, self._job, self._silence, self._environ = run, job.job_id, job, silence, environ
        self._attempts = run.attempts(self._id) if run else []

    def diagnosis(self) -> Diagnosis:
        """Return what is so."""
        if self._run and self._id.startswith(LOCAL) and self._run.runs_here(self._id):
            return replace(self._runs(), name=self._job.name)
        told = {"queued": self._waits, "running": self._runs, "done": self._done, "cancelled": self._cancelled}
        found = told.get(self._job.phase, self._failed)()
        if found.cause == "out-of-memory" and self._job.max_rss:
            found = replace(found, what=f"{found.what}; the largest task had {self._job.max_rss}")
        return replace(found, job_id=self._id, name=self._job.name, state=self._job.state)

    def _waits(self) -> Diagnosis:
        reason = explain(self._job.reason, self._id)
        held = "launch failed" in reason.reason.replace("_", " ") or reason.reason.startswith("JobHeld")
        back = (
            f"it is back in the queue and waits: {reason.meaning}" if self._attempts else f"it waits: {reason.meaning}"
        )
        line = Line("squeue", 0, f"{self._job.state} ({self._job.reason})")
        return self._plainly(
            "held" if held else "waiting", back, reason.advice, again=None, evidence=(line,), before=self._earlier(None)
        )

    def _runs(self) -> Diagnosis:
        now = self._attempts[-1] if self._attempts else ""
        what = f"it runs{f', attempt {now}' if now else ''}{f', on {self._job.nodes}' if self._job.nodes else ''}"
        advice = (
            f"slurmddp logs -f {self._id if '_' in self._id else self._job.name}"
            if self._run
            else f"tail -f {self._job.output}"
        )
        return self._plainly("running", what, advice, again=None, attempt=now, before=self._earlier(now))

    def _done(self) -> Diagnosis:
        """A job that ended well is accused of nothing, unless its step's own failure was swallowed by its script."""
        swallowed = self._swallowed() if self._run is None else None
        return swallowed or self._plainly(NONE, "it ended well", "", again=None)

    def _swallowed(self) -> Diagnosis | None:
        scene = log_evidence.scene(self._outputs())
        succeeded = self._job.last_step == "COMPLETED" if self._job.last_step else scene.went_on
        if not scene.endings or succeeded:
            return None
        inner = judge(self._job, scene)
        what = f"Slurm has it as {self._job.state}, but its last step failed: {inner.what}"
        advice = "let the script end with the step's status: `set -o pipefail`, and nothing after srun"
        return replace(inner, cause="status-swallowed", what=what, sure="likely", advice=advice)

    def _cancelled(self) -> Diagnosis:
        scene = self._scene()
        said = next((seen.line for seen in scene.sightings if seen.rule.key == "cancelled"), None)
        found = self._of_state(self._job._replace(state=self._job.state or "CANCELLED"), by=self._by())
        inner = judge(self._job, scene)
        others = f"before that: {inner.what}" if inner.sure == "certain" and inner.cause not in _OF_SLURM else ""
        return replace(found, evidence=(said,) if said else (), others=others)

    def _by(self) -> str:
        """Return who cancelled the job: its run's events tell of `slurmddp cancel`, else the accounting."""
        if event := self._cancel():
            return f" by `slurmddp cancel` ({event.text('by')})"
        return f" by user {self._job.cancelled_by}" if self._job.cancelled_by else ", by whom Slurm does not say"

    def _cancel(self) -> Event | None:
        last = history.read_outline(self._run).of_job(self._id).decision() if self._run else None
        return last if last and last.kind == "cancel" else None

    def _failed(self) -> Diagnosis:
        """Return the cause by the files, then by the state; one that only the files know may have ended well."""
        if self._job.source == "files" and self._cancel():
            return self._cancelled()
        scene = self._scene()
        if self._job.source == "files" and scene.ended_well:
            return self._plainly(NONE, "it ended well", "", again=None, attempt=scene.attempt)
        inner = judge(self._job, scene)
        if rule_of(self._job.state, self._job.exit_status) and (inner.cause in _OF_SLURM or inner.sure != "certain"):
            inner = self._by_state(inner, scene)
        elif self._job.state == "TIMEOUT":
            hung = "the job then hung until its time limit"
            inner = replace(inner, others="; ".join(filter(None, (inner.others, hung))))
        if inner.cause == UNKNOWN:
            inner = self._without_slurm(inner) if self._job.source == "files" else self._with_state(inner)
        return replace(inner, before=self._earlier(inner.attempt))

    def _by_state(self, inner: Diagnosis, scene: Scene) -> Diagnosis:
        rule = rule_of(self._job.state, self._job.exit_status)
        if rule and rule.key == inner.cause and inner.sure == "certain" and inner.host:
            return inner
        found = self._of_state(self._job)
        lost = self._lost_nodes() if found.cause == "node-lost" else ()
        if lost:
            found = replace(found, what=f"node {', '.join(lost)} was lost", host=lost[0])
            found = replace(found, advice=f"submit it again without that node: -x {','.join(lost)}")
        same = inner if inner.cause in (found.cause, "rank-killed", UNKNOWN) else None
        rank, host = (inner.rank, inner.host) if found.cause == "out-of-memory" else (None, found.host)
        others = inner.others if same else f"at the end: {inner.what}" if inner.cause != UNKNOWN else ""
        return replace(
            found, rank=rank, host=host, evidence=inner.evidence or found.evidence, others=others, attempt=scene.attempt
        )

    def _lost_nodes(self) -> tuple[str, ...]:
        return queries.lost_nodes(self._job.nodes, self._environ, timeout_s=slurm_facts.ASK_LIMIT_S)

    def _of_state(self, known: JobInfo, by: str = "") -> Diagnosis:
        rule = rule_of(known.state, known.exit_status)
        if rule is None:
            return self._plainly(UNKNOWN, "the cause is not known", "", again=None)
        what = rule.what.format(nodes=known.nodes or "its nodes", by=by, reason=known.reason)
        line = Line(known.source, 0, f"{known.state} ({known.reason or known.exit_status})")
        found = self._plainly(rule.key, what, rule.advice, again=rule.again, evidence=(line,))
        return replace(found, sure=rule.sure)

    def _without_slurm(self, inner: Diagnosis) -> Diagnosis:
        """Return what the files leave open where Slurm knows nothing any more."""
        if self._id.startswith(LOCAL):
            return inner
        why = self._silence or "Slurm does not know the job any more"
        return replace(inner, what=f"its files do not say how it ended, and Slurm neither: {why}")

    def _with_state(self, inner: Diagnosis) -> Diagnosis:
        """Return what is not known with what Slurm says of the end, where the output says nothing."""
        ended = ", ".join(filter(None, (self._job.state, self._job.reason, self._job.exit_status)))
        return replace(inner, evidence=(*inner.evidence, Line(self._job.source, 0, ended)))

    def _plainly(self, cause: str, what: str, advice: str, *, again: bool | None, **rest: object) -> Diagnosis:
        return Diagnosis(job_id=self._id, name="", cause=cause, what=what, advice=advice, again=again, **rest)  # type: ignore[arg-type]  # passed on

    def _scene(self) -> Scene:
        """Return what is left of the last start of the ranks; of a job without any, what its output says."""
        if self._run is None:
            return log_evidence.scene(self._outputs())
        failure = set_up_failure(self._run, self._id, self._events)
        if self._attempts and not failure:
            return run_evidence.scene(self._run, self._id, self._attempts[-1], self._events)
        return run_evidence.script_scene(self._run, self._id, self._events, failure)

    @cached_property
    def _events(self) -> Sequence[Event]:
        """The supervisor's events of the job."""
        return read_supervision(self._run, self._id) if self._run else ()

    def _outputs(self) -> list[Path]:
        return [Path(path) for path in (self._job.output, self._job.errors) if path]

    def _earlier(self, now: str | None) -> tuple[Diagnosis, ...]:
        """Return what the starts before this one ended of, those that failed or were ended."""
        if self._run is None:
            return ()
        names = [name for name in self._attempts if name != now][-BEFORE:]
        told = (of_attempt(self._run, self._id, name, self._events) for name in names)
        return tuple(replace(one, name=self._job.name) for one in told)
