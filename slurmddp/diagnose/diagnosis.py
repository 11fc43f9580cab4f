"""The diagnosis of one job: what Slurm says of its state, and the evidence in its files. Asks Slurm; reads files."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from slurmddp import exit_codes
from slurmddp.background import run_in_background
from slurmddp.diagnose.evidence import Evidence, read_log_evidence
from slurmddp.diagnose.rule_types import NONE, RESUME, UNKNOWN, Diagnosis, Line, Rule
from slurmddp.diagnose.rules import causes_with, find_state_rule, load_rules
from slurmddp.diagnose.run_evidence import read_attempt_evidence, read_script_evidence
from slurmddp.diagnose.running import describe_activity
from slurmddp.diagnose.verdict import judge
from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.outcome import Kind, Phase
from slurmddp.runs.facts import Job, describe_resume, is_resumable, judge_by_slurm, last_end, read_job, set_up_failure
from slurmddp.runs.files import read_or_empty
from slurmddp.runs.history import AttemptEvents, Event, History, list_use, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import slurm_name
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo, JobRef
from slurmddp.slurm.pending_reasons import explain
from slurmddp.text import count, format_duration, mask_secrets

LIMIT_S: Final = 2.0
"""Seconds of CPU time for a diagnosis that follows the end of a job by itself: a busy machine does not shorten it."""
QUERY_LIMIT_S: Final = 20.0  # for each of Slurm's programs: they try a controller that is down for minutes
SHOWN_HOLDERS: Final = 3  # how many of the jobs on the nodes that a job waits for are shown
_WAIT: Final = (
    "it starts when they end; fewer nodes or GPUs, or a partition of other nodes (-p), may start earlier: see "
    "`slurmddp cluster`"
)
EARLIER_ATTEMPTS: Final = 3  # how many earlier attempts are diagnosed too
_MORE_MEMORY: Final = 1.5
"""So many times the memory that was not enough is what to ask for: the killed process wanted more than it had."""
_PYTHON: Final = re.compile(r"^source (?P<venv>.+)/bin/activate$|^ +(?P<path>/\S+) -P -u -m slurmddp\.", re.MULTILINE)
"""In a job's script, the Python of its ranks: that of a virtual environment, or by its path."""
_PHASE_ORDER: Final[tuple[Phase, ...]] = ("failed", "cancelled", "unknown", "running", "queued", "done")
_ENDED_WELL: Final = Diagnosis(cause=NONE, what="it ended well")


def diagnose(run: RunDir | None, job_id: str, environ: Mapping[str, str]) -> Diagnosis:
    """Return why a job failed; or that it has not, waits or runs, with the diagnoses of its earlier attempts.

    Raises ClusterError if Slurm does not answer or does not know the job, and there are no files of it.
    """
    job, silence = (JobInfo(job_id), "") if JobRef.parse(job_id).is_local else query_job(job_id, environ)
    known = slurm_name(run, job_id) if run else ""
    if known and job.name not in ("", known):
        job, silence = JobInfo(job_id), f"job {job_id} is now another job: {job.name}"
    job_id, name = job.job_id, run.path.name if run and known else ""
    # a setting of a sweep has its own folder in that of the sweep
    if run and job.ref.is_task and (log := next(run.path.glob(f"*/logs/{job_id}.out"), None)):
        run, name = RunDir(log.parent.parent), f"{name}/{log.parent.parent.name}"
    if job.source == "files" and not (run and (run.batch_log(job_id).exists() or run.attempts(job_id))):
        missing = "there are no files of it here"
        if task := next(run.path.glob(f"*/logs/{job_id}_*.out"), None) if run else None:
            missing = f"it is the job of a sweep: name a setting, or one of its tasks, for example {task.stem}"
        raise ClusterError(f"job {job_id}: {silence or 'Slurm does not know it'}, and {missing}")
    return _Case(run, job._replace(name=name or job.name or job_id), silence, environ).diagnose()


def diagnose_in_time(
    run: RunDir, job_id: str, environ: Mapping[str, str], clock: Callable[[], float] = time.process_time
) -> Diagnosis:
    """Return `diagnose` of a job that nobody has asked about. Raises SlurmddpError also after LIMIT_S of the clock."""
    from concurrent import futures  # noqa: PLC0415 it loads logging, and every start would pay for it

    ends, found = clock() + LIMIT_S, run_in_background(lambda: diagnose(run, job_id, environ))
    while not futures.wait([found], timeout=0.05).done:
        if clock() > ends:
            raise SlurmddpError(f"not finished in {LIMIT_S:.0f} s; type: slurmddp diagnose {run.path.name}")
    return found.result()


def _add_memory(found: Diagnosis, attempt: AttemptEvents) -> Diagnosis:
    """Add to a diagnosis what the ranks of the fullest node had, and what to ask for instead of the limit."""
    used, start = attempt.last("usage"), attempt.last("attempt_start")
    by_node: Counter[str] = Counter()
    for _, host, (_, memory_bytes, *_) in list_use(used) if used else ():
        by_node[host] += int(memory_bytes)
    if not by_node:
        return found
    ((node, size),) = by_node.most_common(1)
    limit_mb = (start.number("memory_mb") if start else None) or 0
    of = f" of {limit_mb / 1024:.1f}" if limit_mb else ""
    amount = f"as --mem {math.ceil(limit_mb * _MORE_MEMORY / 1024)}G" if limit_mb else "by --mem"
    return replace(
        found,
        what=f"{found.what}; the ranks on {node} used {size / 2**30:.1f}{of} GB when they were last measured",
        advice=f"ask for more, {amount}, or use less: fewer loader workers, smaller batches",
    )


def _find_python(run: RunDir, number: str) -> str:
    """Return the Python of a job's ranks, by the job's script; empty if that does not name it."""
    script = read_or_empty((run.sweep or run).submitted_script(number)).decode("utf-8", "replace")
    places = [*_PYTHON.finditer(script)]
    return places[-1]["path"] or f"{places[-1]['venv']}/bin/python" if places else ""


def diagnose_attempt(run: RunDir, job_id: str, attempt: str, events: Sequence[Event]) -> Diagnosis:
    """Return why one attempt ended, from its files alone; `events` are those of the job. Slurm is not asked."""
    return judge(JobInfo(job_id, name=run.path.name), read_attempt_evidence(run, job_id, attempt, events))


def diagnose_ended(run: RunDir, job: JobInfo, environ: Mapping[str, str]) -> Diagnosis:
    """Return why a job of a run ended, of which Slurm has said `job`. Slurm is asked for lost nodes at most."""
    return _Case(run, job._replace(name=run.path.name), "", environ).diagnose()


def query_job(job_id: str, environ: Mapping[str, str]) -> tuple[JobInfo, str]:
    """Return what the controller and the accounting know of a job; and why Slurm did not answer, or an empty string.

    The source of a job that neither knows is `files`.
    """
    answer = queries.controller([job_id], environ, timeout_s=QUERY_LIMIT_S)
    known = _choose_job(job_id, answer.jobs)
    recorded = None
    if "not found" not in answer.silence:
        found = queries.last_run(job_id, environ, timeout_s=QUERY_LIMIT_S).jobs
        recorded = _choose_job(job_id, [job for job in found if re.fullmatch(rf"{job_id}(_\d+)?", job.job_id)])
    if known and recorded:
        known = known._replace(
            cancelled_by=recorded.cancelled_by, max_rss=recorded.max_rss, last_step=recorded.last_step
        )
    if job := known or recorded:
        return job, ""
    return JobInfo(job_id), answer.silence


def _choose_job(job_id: str, jobs: Sequence[JobInfo]) -> JobInfo | None:
    """Return the job; of a whole array the task that failed, if one did. A state that is not known becomes empty."""
    job = min(jobs, key=lambda job: _PHASE_ORDER.index(job.phase), default=None)
    if job is None:
        return None
    job_id = job.job_id if job.ref.is_task else job_id
    return job._replace(job_id=job_id, state="" if job.state == "UNKNOWN" else job.state)


@dataclass(frozen=True)
class _Case:
    """One job that is diagnosed."""

    run: RunDir | None
    job: JobInfo
    silence: str
    environ: Mapping[str, str]

    @cached_property
    def facts(self) -> Job:
        """What happened to the job, by Slurm and by its files."""
        known = None if self.job.source == "files" else self.job
        if self.run:
            return read_job(self.run, self.job.job_id, known, history=read_outline(self.run))
        return Job(job_id=self.job.job_id, outcome=judge_by_slurm(self.job), history=History(()), slurm=known)

    @cached_property
    def attempts(self) -> list[str]:
        return self.run.attempts(self.job.job_id) if self.run else []

    @cached_property
    def events(self) -> Sequence[Event]:
        """The supervisor's events of the job."""
        return self.facts.history.supervision

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence of the last attempt; what the job's output says if there is no attempt."""
        if self.run is None:
            return read_log_evidence([Path(path) for path in (self.job.output, self.job.errors) if path])
        failure = set_up_failure(self.run, self.job.job_id, self.events)
        if self.attempts and not failure:
            return read_attempt_evidence(self.run, self.job.job_id, self.attempts[-1], self.events)
        return read_script_evidence(self.run, self.job.job_id, self.events, failure)

    def diagnose(self) -> Diagnosis:
        by_kind = {
            Kind.PENDING: self._diagnose_waiting,
            Kind.RUNNING: self._diagnose_running,
            Kind.DONE: self._diagnose_done,
            Kind.CANCELLED: self._diagnose_cancelled,
        }
        found = by_kind.get(self.facts.outcome.kind, self._diagnose_failed)()
        if found.cause == "out-of-memory" and self.job.max_rss:
            found = replace(found, what=f"{found.what}; the largest task had {self.job.max_rss}")
        if found.cause == "out-of-memory" and self.facts.attempts:
            found = _add_memory(found, self.facts.attempts[-1].events)
        module = re.search(r"Python has no module (\w+)", found.what) if found.cause == "import-error" else None
        if module and self.run and (python := _find_python(self.run, self.job.ref.array_id)):
            name = f"{python} -m pip install {module[1]}"
            found = replace(found, advice=f"{name}; the package of a module may have another name, as pyyaml of yaml")
        if self.run and RESUME in found.advice and is_resumable(self.run):
            found = replace(found, advice=found.advice.replace(RESUME, describe_resume(self.run)))
        state = "" if self.facts.outcome.kind is Kind.UNKNOWN else self.facts.outcome.word
        return replace(found, job_id=self.job.job_id, name=self.job.name, state=state)

    def _diagnose_waiting(self) -> Diagnosis:
        reason = explain(self.job.reason, self.job.job_id)
        holders = tuple(self._list_holders())
        shown = f"{self.job.state} ({self.job.reason})" if self.job.reason else self.job.state
        held = "launch failed" in self.job.reason.replace("_", " ") or self.job.reason.startswith("JobHeld")
        return Diagnosis(
            cause="held" if held else "waiting",
            what=f"{'it is back in the queue and waits' if self.attempts else 'it waits'}: {reason.meaning}",
            advice=_WAIT if holders else reason.advice,
            evidence=(Line("squeue", 0, shown), *holders),
            before=self._diagnose_earlier(None),
        )

    def _list_holders(self) -> Iterator[Line]:
        """Yield a line for some of the jobs that run on the nodes of the partition that the job waits for."""
        if self.job.reason not in ("Resources", "Priority"):
            return
        found = queries.running_on(self.job.partition, self.environ, timeout_s=QUERY_LIMIT_S)
        for job in found[:SHOWN_HOLDERS]:
            left_s = max(0, (job.limit_s or 0) - (job.elapsed_s or 0))
            left = "without a time limit" if job.limit_s is None else f"for at most {format_duration(left_s)} more"
            yield Line("squeue", 0, f"job {job.job_id} of {job.user} runs on {job.nodes} {left}")
        if len(found) > SHOWN_HOLDERS:
            yield Line("squeue", 0, f"{count(len(found) - SHOWN_HOLDERS, 'more job')}")
        before = queries.pending_before(self.job, self.environ, timeout_s=QUERY_LIMIT_S)
        for job in before[:SHOWN_HOLDERS]:
            yield Line("squeue", 0, f"job {job.job_id} of {job.user} waits, and comes before it")
        if len(before) > SHOWN_HOLDERS:
            yield Line("squeue", 0, f"{count(len(before) - SHOWN_HOLDERS, 'more job')} before it")

    def _diagnose_running(self) -> Diagnosis:
        attempt = self.attempts[-1] if self.attempts else ""
        end = last_end(self.events)
        if self.run and attempt and end and end.kind == "job_end" and end.number("status"):  # its script is not over
            return diagnose_attempt(self.run, self.job.job_id, attempt, self.events)
        on_nodes = f", on {self.job.nodes}" if self.job.nodes else ""
        name = self.job.name if self.run and self.run.path.name == self.job.name else self.job.job_id
        runs = f"it runs{f', attempt {attempt}' if attempt else ''}{on_nodes}"
        does = Diagnosis(cause="running", what="")
        if self.run and self.facts.attempts:
            does = describe_activity(self.facts.attempts[-1].events, self.run.attempt(self.job.job_id, attempt))
        advice = f"slurmddp logs -f {name}" if self.run else f"tail -f {self.job.output}"
        if does.cause == "hanging":
            advice = f"slurmddp stacks {name} (shows where each rank stands), slurmddp requeue {name} (starts it again)"
        what = "; ".join(filter(None, (runs, does.what)))
        return replace(does, what=what, advice=advice, attempt=attempt, before=self._diagnose_earlier(attempt))

    def _diagnose_done(self) -> Diagnosis:
        """Return that the job ended well, or that its script hid the failure of its last step."""
        if self.run:
            last = self.attempts[-1] if self.attempts and self.job.state != "COMPLETED" else ""
            what = "; ".join((_ENDED_WELL.what, *self._list_passed_over()))
            return replace(_ENDED_WELL, attempt=last, what=what)
        succeeded = self.job.last_step == "COMPLETED" if self.job.last_step else self.evidence.continued_after_exit
        if not self.evidence.exits or succeeded:
            return _ENDED_WELL
        inner = judge(self.job, self.evidence)
        return replace(
            inner,
            cause="status-swallowed",
            what=f"Slurm reports {self.job.state}, but the job's last step failed: {inner.what}",
            sure="likely",
            advice="let the script end with the step's status: `set -o pipefail`, and no command after srun",
        )

    def _list_passed_over(self) -> Iterator[str]:
        """Yield each failure of a launch after which a script of the user's own went on."""
        start = self.attempts[-1].partition(".")[0] if self.attempts else ""
        for event in self.events:
            is_failure = event.kind == "job_end" and event.number("status") not in (None, exit_codes.DONE)
            if is_failure and event.attempt.partition(".")[0] == start:
                yield f"before, its script went on after attempt {event.attempt} had failed: {event.text('reason')}"

    def _diagnose_cancelled(self) -> Diagnosis:
        by = f" by user {self.job.cancelled_by}" if self.job.cancelled_by else "; Slurm does not say by which user"
        if " by " in (reason := self.facts.outcome.reason):
            by = reason.removeprefix("cancelled")
        rule = next(rule for rule in load_rules().own if rule.state == (self.job.state or "CANCELLED"))
        line = next((seen.line for seen in self.evidence.observations if seen.rule.key == "cancelled"), None)
        inner = judge(self.job, self.evidence)
        is_failure = inner.sure == "certain" and inner.cause not in (UNKNOWN, *causes_with("state"))
        others = f"before that: {inner.what}" if is_failure else ""
        return rule.make_diagnosis(rule.what.format(by=by), evidence=(line,) if line else (), others=others)

    def _diagnose_failed(self) -> Diagnosis:
        """Return the cause by the files, then by the state."""
        found = judge(self.job, self.evidence)
        set_up = set_up_failure(self.run, self.job.job_id, self.events) if self.run else None
        rule = None if set_up else find_state_rule(self.job.state, self.job.exit_status)
        if set_up and found.cause != "set-up-failed":
            found = replace(found, others=f"the {mask_secrets(set_up.reason)}")
        if rule and (found.cause in (UNKNOWN, *causes_with("state")) or found.sure != "certain"):
            found = self._prefer_state(rule, found)
        if found.cause == UNKNOWN:
            found = self._explain_unknown(found)
        return replace(found, before=self._diagnose_earlier(found.attempt))

    def _prefer_state(self, rule: Rule, inner: Diagnosis) -> Diagnosis:
        """Return the diagnosis by the rule of the job's state, with what the files add to it."""
        if rule.key == inner.cause and inner.sure == "certain" and inner.host:
            return inner
        line = Line(self.job.source, 0, f"{self.job.state} ({self.job.reason or self.job.exit_status})")
        is_same = inner.cause in (rule.key, "rank-killed", UNKNOWN)
        found = rule.make_diagnosis(
            rule.what.format(nodes=self.job.nodes or "its nodes", output=self.job.output),
            evidence=inner.evidence or (line,),
            others=inner.others if is_same else f"at the end: {inner.what}",
            attempt=self.evidence.attempt,
        )
        if rule.key == "out-of-memory":
            return replace(found, rank=inner.rank, host=inner.host)
        if rule.key == "node-lost" and (
            lost := queries.lost_nodes(self.job.nodes, self.environ, timeout_s=QUERY_LIMIT_S)
        ):
            what, advice = f"node {', '.join(lost)} was lost", f"submit it again without it: -x {','.join(lost)}"
            return replace(found, what=what, host=lost[0], advice=advice)
        return found

    def _explain_unknown(self, found: Diagnosis) -> Diagnosis:
        """Add what Slurm says of the end, or why it says nothing."""
        if self.job.ref.is_local:
            return found
        missing = [path for path in (self.job.output, self.job.errors) if path and not Path(path).exists()]
        if missing and not self.run:
            advice = "its output was moved or removed, or is on another machine; name the file, if there is a copy"
            return replace(found, what=f"the cause is not known: its output {missing[0]} is missing", advice=advice)
        if self.job.source == "files":
            why = self.silence or "Slurm does not know the job any more"
            return replace(found, what=f"the job's files do not say how it ended, and Slurm does not either: {why}")
        end = ", ".join(filter(None, (self.job.state, self.job.reason, self.job.exit_status)))
        return replace(found, evidence=(*found.evidence, Line(self.job.source, 0, end)))

    def _diagnose_earlier(self, current: str | None) -> tuple[Diagnosis, ...]:
        """Return the diagnoses of the attempts before the current one, but for those of trainings that are done."""
        if self.run is None:
            return ()
        passed = {current, *(one.name for one in self.facts.attempts if one.outcome.kind is Kind.DONE)}
        names = [name for name in self.attempts if name not in passed][-EARLIER_ATTEMPTS:]
        found = (diagnose_attempt(self.run, self.job.job_id, name, self.events) for name in names)
        return tuple(replace(earlier, name=self.job.name) for earlier in found)
