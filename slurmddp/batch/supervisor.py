"""Supervises one job, from the `exec` of its batch script to its end: see docs/life-of-a-job.md.

Slurm, the clock, the launcher and the log are parameters. There is no signal handler: `scancel` ends this process at
once, and a cancelled job stays cancelled.
"""

from __future__ import annotations
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Protocol

from slurmddp import variables
from slurmddp.batch import attempt as attempts
from slurmddp.batch import policy
from slurmddp.batch.attempt import Job, choose_ports, is_port_free
from slurmddp.batch.controller import Controller
from slurmddp.batch.policy import Action, End, Fence, Requeue, Requeued, Restart, Result, Start
from slurmddp.errors import ClusterError, FencedError
from slurmddp.exit_codes import DONE, FAILED, FENCED, RETRYABLE, STOPPED
from slurmddp.runs import events
from slurmddp.runs.checkpoints import find_saved, read_progress_mark
from slurmddp.runs.code_copy import explain_changed
from slurmddp.runs.events import Author, SupervisorEvent
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.files import write_whole
from slurmddp.runs.ownership import Claim, HeldError, Ownership, attempt_order, take_file
from slurmddp.runs.submissions import record_direct_submission, submissions
from slurmddp.slurm.client import RefusedError, spread
from slurmddp.slurm.job_info import JobInfo, JobRef
from slurmddp.supervisor_options import Options
from slurmddp.text import count

ASK_AGAIN_S: Final = 10.0
LONGEST_PAUSE_S: Final = 60.0
"""A controller that does not answer is asked less and less often, by each of many jobs at another moment."""
RECORDED_S: Final = 300.0
"""A submission that holds the run has recorded its job within this time, or was killed."""
HOLDER_ENDS_S: Final = 5.0
DISK_S: Final = 60.0
DISK_TRIES: Final = 10
REQUEUE_TRIES: Final = 30
KILL_COMES_S: Final = 60.0
"""After a requeue, Slurm ends this process within this time."""


class Clock(Protocol):
    """The module `time`, or a fake in tests."""

    def time(self) -> float: ...  # noqa: D102
    def monotonic(self) -> float: ...  # noqa: D102
    def sleep(self, seconds: float, /) -> None: ...  # noqa: D102


def write_line(text: str) -> None:
    """Write a line to the batch log, with time and program name."""
    with suppress(OSError):  # a full disk must not end the job
        sys.stdout.write(f"{time.strftime('%FT%T%z')} slurmddp: {text}\n")
        sys.stdout.flush()


def output_size() -> int:
    """Return the size of the file of standard output; 0 when it is not a file."""
    with suppress(OSError):
        return os.fstat(1).st_size
    return 0


class Supervisor:
    """The supervisor of one job."""

    def __init__(  # noqa: PLR0913 - all are given by name
        self,
        *,
        options: Options,
        job: Job,
        environ: Mapping[str, str],
        slurm: Controller,
        launch: Callable[[Mapping[str, str]], int],
        finish: Callable[[Mapping[str, str]], object] | None = None,
        clock: Clock = time,
        say: Callable[[str], None] = write_line,
        log_size: Callable[[], int] = output_size,
        tell: Callable[[str, SupervisorEvent], object] = lambda *_: None,
    ) -> None:
        """Take the ranks' environment `environ`; `say` writes to the batch log, `log_size` returns its bytes.

        `launch` runs the ranks with an environment to their end, and returns the launcher's status; `finish` runs a
        template's `finish` block with one. `tell` gets the attempt of each event, and the event.
        """
        self.options, self.job, self.environ, self.slurm, self.launch = options, job, environ, slurm, launch
        self.finish, self.clock, self.say, self.log_size, self.tell = finish, clock, say, log_size, tell
        self.started_at = clock.time()
        self.attempt = f"{job.restarts}.0"
        earlier = job.run.attempts(job.job_id) if options.own_launch else []
        self.others = [name for name in earlier if name.startswith(f"{job.restarts}.")]
        """The attempts of this allocation's other launches; a script may start ranks more than once."""
        self.number = len(self.others)
        self.failures = 0
        """Failed attempts in a row without progress."""
        self.first_checkpoint = self.checkpoint = "none"
        """The newest checkpoint when this process started, and when the attempt did."""
        self.ends_at: float | None = None
        """When the time limit ends the job."""
        self.allocated: float | None = None
        self.owner: Ownership | None = None

    def run(self) -> int:
        """Supervise the job to its end; return the exit status of the batch script."""
        try:
            self.first_checkpoint = self._newest_checkpoint
            action = self._decide_first()
            while not isinstance(action, (End, Fence)):
                if isinstance(action, Restart):
                    self._record(events.AttemptRestart(status=action.status, reason=action.reason))
                    self.number += 1
                action = self._requeue(action) if isinstance(action, Requeue) else self._start()
        except FencedError as fenced:
            action = Fence(str(fenced))
        except OSError as error:
            action = End(RETRYABLE, f"{error.filename or self.job.run.path}: {error.strerror}")
        return self._finish(action)

    def _decide_first(self) -> Action:
        """Return the first action. A job that ended within its grace time may be started again by Slurm (24.05 on)."""
        if self.options.single_attempt:
            return Start()
        if self.job.restarts and not self.options.repeated_launch and (names := self.job.run.attempts(self.job.job_id)):
            record = decisive_record(read_records(self.job.run.attempt(self.job.job_id, names[-1])))
            if record and record.status == DONE:
                self.attempt = names[-1]  # the event of the end belongs to it: this start is no attempt
                return End(DONE, f"attempt {names[-1]} has finished the training, so no ranks are started")
        if self.job.restarts == 0:  # the file may be left by a job of the same number on an earlier cluster
            with suppress(OSError):
                self._requeues.unlink(missing_ok=True)
        job = self._query_job()
        if self.options.record:
            with suppress(OSError):
                self._record_submission(job)
        return policy.decide_first(job, lead_s=self.options.signal_lead, margin_s=self.options.signal_margin)

    def _record_submission(self, job: JobInfo) -> None:
        """Record a job that `slurmddp submit` has not: it was killed, or the script was given to sbatch by the user."""
        run = self.job.run.sweep or self.job.run
        number = JobRef.parse(self.job.job_id).array_id
        submitted = job.submitted or datetime.fromtimestamp(self.started_at, timezone.utc)
        is_new = not self.job.restarts and self.started_at - submitted.timestamp() < RECORDED_S
        if (is_new and run.claim.exists()) or any(record["job"] == number for record in submissions(run)):
            return
        when = submitted.astimezone(timezone.utc).isoformat(timespec="seconds")
        record_direct_submission(run, number, time=when, sha256=self.slurm.script_digest(number), name=job.name)

    def _find_problem(self) -> str:
        """Return why the ranks cannot start; empty when they can."""
        for name in self.options.require_env:
            if name not in self.environ:
                return f"{name} must be set where the job is submitted"
        code = self.environ.get(variables.CODE)
        if code and not Path(code).is_dir():
            return f"{code} is missing; submit the job by `slurmddp submit`, which makes it"
        if why := self.job.run.explain_strange() or (code and explain_changed(Path(code))):
            return f"{why}; nothing of it is used: submit the job again"
        return "" if self.job.head else f"scontrol names no host of {self.job.host_list}"

    def _start(self) -> Action:
        """Make one attempt, if the run and its code are still this user's; return the next action."""
        if problem := self._find_problem():
            return End(FAILED, problem)
        self.attempt = f"{self.job.restarts}.{self.number}"
        began = self.clock.monotonic()
        if failure := self._prepare_with_retries():
            return self._end_resumable(failure)
        waited = self.clock.monotonic() - began >= HOLDER_ENDS_S and not self.options.single_attempt
        if waited and (requeue := policy.check_before_start(self._query_job(), lead_s=self.options.signal_lead)):
            return requeue
        return self._decide_after(self._run_attempt())

    def _run_attempt(self) -> Result:
        """Run the ranks to their end; return the result."""
        folder = self.job.run.attempt(self.job.job_id, self.attempt)
        self.checkpoint = self._newest_checkpoint
        self._record(
            events.AttemptStart(
                nodes=self.job.host_list,
                log_offset=self.log_size(),
                allocated=self.allocated,
                checkpoints=self.options.checkpoints and str(Path.cwd() / self.options.checkpoints),
            )
        )
        self.say(f"{self._name}, on {self.job.host_list}, output of the ranks in {folder}")
        from slurmddp.batch.watch import Watch  # noqa: PLC0415 - needed only to start the ranks

        watch = Watch(self.options, self.job, self.slurm, say=self.say, record=self._record)
        environment = self._build_environment(folder)
        environment |= watch.start(environment)
        status = self.launch(environment)
        result = watch.stop(attempts.read_result(self.job, self.attempt, status, own_launch=self.options.own_launch))
        self.say(f"{self._name}, ended with status {result.status}: {result.reason}")
        self._record(events.AttemptEnd(status=result.status, reason=result.reason))
        if self.finish and result.status != FENCED:
            self.finish({**environment, variables.STATUS: str(result.status)})
        return result

    def _decide_after(self, result: Result) -> Action:
        """Return the action that follows from a result."""
        if self.options.single_attempt:
            return End(*result)
        if self.options.own_launch and result.status == FAILED and (lost := self.slurm.lost_nodes(self.job.host_list)):
            return policy.requeue_after_loss(lost)
        if action := policy.decide_by_result(result):
            return action
        job = self._query_job()
        self.failures = 1 if self._newest_checkpoint != self.checkpoint else self.failures + 1
        return policy.decide_after_crash(
            result,
            job,
            self.slurm.lost_nodes(self.job.host_list),
            failures=self.failures,
            max_restarts=self.options.max_restarts,
            lead_s=self.options.signal_lead,
        )

    def _query_job(self) -> JobInfo:
        """Query Slurm for the job until it answers: without the controller nothing may start.

        Raises FencedError when this process is no longer the job's batch script.
        """
        tries = 0
        while True:
            try:
                job = self.slurm.job(self.job.job_id)
            except ClusterError as error:
                self._pause(tries, error)
                tries += 1
                continue
            if job is None:
                raise FencedError("Slurm no longer knows the job")
            if why := policy.check_fenced(job, restarts=self.job.restarts, host=self.job.host):
                raise FencedError(why)
            left_s = policy.time_left_s(job)
            self.ends_at = None if left_s is None else self.clock.time() + left_s
            self.allocated = job.started.timestamp() if job.started else None
            return job

    def _pause(self, tries: int, error: ClusterError) -> None:
        """Wait until Slurm is asked again: 10, 20, 40, then 60 s, each by a fifth longer or shorter."""
        pause_s = spread(min(ASK_AGAIN_S * 2**tries, LONGEST_PAUSE_S))
        self.say(f"Slurm does not answer, asking again in {pause_s:.0f} s: {error}")
        self.clock.sleep(pause_s)

    def _prepare_with_retries(self) -> str:
        """Prepare the attempt, with retries while the disk is full; return the error, empty when it is done."""
        for left in reversed(range(DISK_TRIES + 1)):
            try:
                self._prepare()
            except OSError as error:
                failure = f"{self.job.run.path} cannot be written to: {error.strerror}"
                if left:
                    self.say(f"{failure}; trying again in {DISK_S:.0f} s, {count(left, 'time')} at most")
                    self.clock.sleep(DISK_S)
            else:
                return ""
        return failure

    def _prepare(self) -> None:
        """Take ownership of the run and make the attempt's folder. Raises OSError when the folder is not writable."""
        self.owner = Ownership(self.job.run.owner, str(self._claim))
        try:
            take_file(self.owner.path, self.owner.line, self._describe_holder)
        except HeldError as error:
            raise FencedError(str(error)) from error
        if not (ignored := self.job.run.path / ".gitignore").exists():
            write_whole(ignored, b"*\n")
        if self.options.reset is not None and (aside := attempts.reset_run(self.job.run, self.options.reset)):
            self.first_checkpoint = "none"
            self.say(f"started over; the earlier state of the run is in {aside}")
        folder = self.job.run.attempt(self.job.job_id, self.attempt)
        if folder.exists():  # another cluster's job of the same number has left it
            folder.rename(f"{folder}.before-{time.time_ns()}")
        folder.mkdir(parents=True)
        self.job.run.checkpoints.mkdir(exist_ok=True)  # a program of one's own saves there

    @property
    def _claim(self) -> Claim:
        return Claim(self.job.cluster, self.job.job_id, self.attempt)

    def _describe_holder(self, line: str) -> str:
        """Return why the owner keeps the run; empty if it is an earlier attempt of this job or has ended."""
        holder = Claim.parse(line)
        if holder is None:
            return ""
        if holder.cluster != self.job.cluster:
            return (
                f"the run belongs to job {holder.job} of cluster {holder.cluster}, which cannot be asked here; "
                f"if that job is gone, remove {self.job.run.owner}"
            )
        if holder.job == self.job.job_id:
            later = f"the job's later attempt {holder.attempt} owns the run"
            return "" if attempt_order(self._claim.attempt) >= attempt_order(holder.attempt) else later
        state = self._active_state(holder.job)
        return state and f"the run belongs to job {holder.job}, which is {state}"

    def _active_state(self, job_id: str) -> str:
        """Return the state of another job, empty when it has ended; wait while it is ending."""
        while True:
            try:
                job = self.slurm.job(job_id)
            except ClusterError as error:
                said = str(error)
            else:
                if job is None or job.has_ended:
                    return ""
                if job.state != "COMPLETING":
                    return job.state
                said = job.state
            self.say(f"waiting {HOLDER_ENDS_S:.0f} s for the end of job {job_id}, which owns the run: {said}")
            self.clock.sleep(HOLDER_ENDS_S)

    def _build_environment(self, folder: Path) -> dict[str, str]:
        port, store = choose_ports(self.job, self.number, self.options.ports, is_port_free)
        values = {
            variables.ATTEMPT: self.attempt,
            variables.ATTEMPT_DIR: str(folder),
            variables.OWNER: str(self._claim),
            variables.RUN_DIR: str(self.job.run.path),
            variables.JOB_ID: self.job.job_id,
            variables.HEAD_ADDRESS: self.slurm.address(self.job.head),
            variables.STORE_PORT: str(store),
            variables.SECRET: os.urandom(16).hex(),
        }
        if self.options.repeated_launch:
            values[variables.SKIP_TRACKER_IDS] = "1"
        values |= attempts.build_resume_variables(self.job, self.attempt, self.options.checkpoints, self.others)
        if values[variables.RESTARTS] == "1" and not find_saved(self.job.run, self.options.checkpoints):
            self.say(
                "slurmddp knows no checkpoint of this run: COMMAND is started as before, and may load one of its own"
            )
        if self.options.rendezvous_file:
            values[variables.RENDEZVOUS_FILE] = f"file://{self.job.run.rendezvous_file(self.job.job_id, self.attempt)}"
        if self.ends_at is not None:
            values[variables.STOP_AT] = str(int(self.ends_at) - self.options.signal_lead)
        if self.options.own_launch:  # the script chooses these by itself
            return {**self.environ, **values}
        head = self.options.head_address.replace("{host}", self.job.head)
        threads = self.environ.get("OMP_NUM_THREADS") or str(attempts.count_threads(self.job, self.environ))
        return {**self.environ, **values, "MASTER_ADDR": head, "MASTER_PORT": str(port), "OMP_NUM_THREADS": threads}

    def _requeue(self, wanted: Requeue) -> Action:
        """Requeue the job, which ends this process; return the end of the job when it cannot be requeued."""
        job = self._query_job()
        if job.requeue is False:
            return self._end_resumable(f"{wanted.reason}. The job may not be requeued (Requeue=0)")
        if not job.preempted:  # a preemption without a grace time is not counted either: Slurm requeues the job itself
            now = Requeued(
                progressed=self._newest_checkpoint != self.first_checkpoint,
                at_time_limit=policy.is_at_time_limit(job, lead_s=self.options.signal_lead),
            )
            past: list[Requeued] = []
            with suppress(OSError):
                past = [Requeued.parse(line) for line in self._requeues.read_text(errors="replace").splitlines()]
            if refused := policy.check_requeue(past, now, limit=self.options.max_requeues):
                return self._end_resumable(f"{wanted.reason}. {refused}")
            with suppress(OSError), self._requeues.open("a") as file:  # with a full disk it is not counted
                file.write(f"{now}\n")
        nodes = wanted.lost_nodes
        asked = self.slurm.hostnames(job.required_nodes) if nodes and job.required_nodes else ()
        for node in {*asked}.intersection(nodes):
            self.say(f"{node} cannot be excluded: --nodelist asks for it")
        nodes = tuple(node for node in nodes if node not in asked)
        self.say(f"back into the queue: {wanted.reason}")
        self._record(events.JobRequeue(reason=wanted.reason, excluded=nodes))
        said = self._order_requeue(nodes, job)
        return self._end_resumable(f"Slurm has not requeued the job ({said})")

    def _order_requeue(self, nodes: tuple[str, ...], job: JobInfo) -> str:
        """Order the requeue; return Slurm's message when the job is not requeued."""
        if nodes:  # ExcNodeList can be changed only after the requeue, which sends TERM to this process
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        said = "no answer"
        for tries in range(REQUEUE_TRIES):
            try:
                self.slurm.requeue(self.job.job_id)
            except RefusedError as error:
                return str(error)
            except ClusterError as error:
                said = str(error)
                self._pause(tries, error)
            else:
                said = "it has accepted the requeue, and has not ended the job"
                self._exclude(nodes, job)
                self.clock.sleep(KILL_COMES_S)
            try:
                self._query_job()
            except FencedError as error:  # it was requeued although the answer to the order was lost
                self._exclude(nodes, job)
                raise SystemExit(STOPPED) from error
        return said

    def _exclude(self, nodes: tuple[str, ...], job: JobInfo) -> None:
        """Add nodes to the excluded nodes of the queued job; exit when Slurm accepts them."""
        if not nodes:
            return
        listed = ",".join([*([job.excluded_nodes] if job.excluded_nodes else []), *nodes])
        try:
            self.slurm.exclude(self.job.job_id, listed)
        except ClusterError as error:
            self.say(f"{', '.join(nodes)} could not be excluded: {error}")
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        else:
            raise SystemExit(STOPPED)  # TERM was ignored, so this process must end by itself

    def _end_resumable(self, reason: str) -> End:
        """Return the end of a job that could not be requeued, and can be submitted again."""
        newest = self._newest_checkpoint
        state = "it has no checkpoint" if newest == "none" else f"its newest checkpoint is {newest}"
        resume = " with the arguments that resume it" if self.options.checkpoints else ""
        return End(STOPPED, f"{reason}: {state}; submit {self.job.run.job_name} again{resume} to go on")

    @property
    def _newest_checkpoint(self) -> str:
        return read_progress_mark(self.job.run, self.options.checkpoints, self.job.job_id)

    @property
    def _requeues(self) -> Path:
        return self.job.run.requeues(self.job.job_id)

    def _finish(self, action: End | Fence) -> int:
        """Log why the job ends and release the run; return the exit status of the batch script."""
        if isinstance(action, Fence):
            self.say(f"{self._name}, writes nothing more: {action.reason}")
            self._record(events.Fenced(reason=action.reason))
            return FENCED
        what = f"{'the launch of ' * self.options.own_launch}job {self.job.job_id}"
        self.say(f"{what} ends with status {action.status}: {action.reason}")
        self._record(events.JobEnd(status=action.status, reason=action.reason))
        if self.owner:
            self.owner.release()
        if action.status == DONE and not self.options.single_attempt:
            # from 24.05 on, a job that ends within its grace time counts as preempted, whatever its exit status; on
            # 24.11 also one that was requeued within it: jobs that wait for its success would never start
            with suppress(ClusterError):
                job = self.slurm.job(self.job.job_id)
                if job and (job.preempted or self.job.restarts):
                    for dependent in self.slurm.release_dependents(self.job.job_id):
                        self.say(f"job {dependent} now waits for the end of this job: Slurm may count it as preempted")
        return action.status

    @property
    def _name(self) -> str:
        return f"job {self.job.job_id}, attempt {self.attempt}"

    def _record(self, event: SupervisorEvent) -> None:
        author = Author(job=self.job.job_id, attempt=self.attempt, host=self.job.host)
        events.append(self.job.run, author, event)
        self.tell(self.attempt, event)
