"""Supervises one job, from the `exec` of its batch script to its end: see docs/life-of-a-job.md.

Slurm, the clock, the launcher and the log are parameters. There is no signal handler: `scancel` ends this process at
once, and a cancelled job stays cancelled.
"""

from __future__ import annotations
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Protocol

from slurmddp import variables
from slurmddp.attach import run_words
from slurmddp.batch import attempt as attempts
from slurmddp.batch import policy
from slurmddp.batch.attempt import Job, choose_ports, is_port_free
from slurmddp.batch.controller import Controller
from slurmddp.batch.policy import Action, Requeued, Result
from slurmddp.errors import ClusterError, FencedError
from slurmddp.exit_codes import DONE, FAILED, FENCED, RETRYABLE, STOPPED
from slurmddp.runs import events
from slurmddp.runs.checkpoints import find_saved, read_progress_mark
from slurmddp.runs.code_copy import explain_changed
from slurmddp.runs.events import AttemptRestart, Author, Fenced, Found, JobEnd, JobRequeue, SupervisorEvent
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.files import write_whole
from slurmddp.runs.ownership import Claim, HeldError, Ownership, attempt_order, take_file
from slurmddp.runs.submissions import record_direct_submission, submissions
from slurmddp.slurm.client import TIMEOUT_S, RefusedError, spread
from slurmddp.slurm.hostlist import names_in
from slurmddp.slurm.job_info import JobInfo, JobRef
from slurmddp.slurm.values import parse_number
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
EXCLUDE_TRIES: Final = 4
"""With a second between them; Slurm kills what ignores TERM after KillWait, which is 30 s by default."""
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


def output_size(descriptor: int = 1) -> int:
    """Return the size of the file of standard output, or of another descriptor; 0 when it is not a file."""
    with suppress(OSError):
        return os.fstat(descriptor).st_size
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
        judge_nodes: Callable[[str], object] = lambda _: None,
        guard: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Take the ranks' environment `environ`; `say` writes to the batch log, `log_size` returns its bytes.

        `launch` runs the ranks with an environment to their end, and returns the launcher's status; `finish` runs a
        template's `finish` block with one. `tell` gets the attempt of each event, and the event. `judge_nodes` gets an
        attempt, and notes what it shows of its nodes. `guard` starts the guard of this node on another one.
        """
        self.options, self.job, self.environ, self.slurm, self.launch = options, job, environ, slurm, launch
        self.finish, self.clock, self.say, self.log_size, self.tell = finish, clock, say, log_size, tell
        self.judge_nodes, self.guard = judge_nodes, guard
        self.nodes = job.hosts
        """Those of the allocation, in its order; `job.hosts` are those in use."""
        self.gone: set[str] = set()
        """The nodes of the allocation that are not used any more."""
        self.guarded_from = ""
        """The node of the guard."""
        if options.spares and job.hosts:
            self._use_nodes(job.hosts[: max(1, len(job.hosts) - options.spares)])
        self.requeues = job.run.requeues(job.job_id)
        self.started_at = clock.time()
        self.attempt = f"{job.restarts}.0"
        earlier = job.run.attempts(job.job_id) if options.own_launch else []
        self.number = sum(name.startswith(f"{job.restarts}.") for name in earlier)
        """A user's own script may start ranks more than once in an allocation."""
        self.failures = 0
        """Failed attempts in a row without progress."""
        self.first_checkpoint = self.checkpoint = "none"
        """The newest checkpoint when this process started, and when the attempt did."""
        self.ends_at: float | None = None
        """When the time limit ends the job."""
        self.allocated: float | None = None
        self.queued: float | None = None
        self.owner: Ownership | None = None
        self.done: Path | None = None
        """The file that says to the other launches of a user's own script that this training is done."""

    def run(self) -> int:
        """Supervise the job to its end; return the exit status of the batch script."""
        try:
            self._take_training()
            self.first_checkpoint = self._newest_checkpoint
            action = self._decide_first()
            while not isinstance(action, (JobEnd, Fenced)):
                if isinstance(action, AttemptRestart):
                    self._record(action)
                    self.number += 1
                action = self._requeue(action) if isinstance(action, JobRequeue) else self._start()
        except FencedError as fenced:
            action = Fenced(str(fenced))
        except OSError as error:
            action = JobEnd(RETRYABLE, f"{error.filename or self.job.run.path}: {error.strerror}")
        return self._finish(action)

    def _take_training(self) -> None:
        """Use the folder of checkpoints that belongs to this training, where a script of the user's own has several."""
        if self.options.own_launch:
            run, self.done = attempts.take_training(self.job, self.environ.get(variables.TRAINING, ""))
            self.job = self.job._replace(run=run)

    def _decide_first(self) -> Action | None:
        """Return the first action, None to start the ranks.

        Slurm may start a job again that ended within its grace time (24.05 on).
        """
        if self.options.single_attempt:
            return None
        if self.job.restarts and not self.options.repeated_launch and (names := self.job.run.attempts(self.job.job_id)):
            record = decisive_record(read_records(self.job.run.attempt(self.job.job_id, names[-1])))
            if record and record.status == DONE:
                self.attempt = names[-1]  # the event of the end belongs to it: this start is no attempt
                return JobEnd(DONE, f"attempt {names[-1]} has finished the training, so no ranks are started")
        if self.job.restarts == 0:  # the file may be left by a job of the same number on an earlier cluster
            with suppress(OSError):
                self.requeues.unlink(missing_ok=True)
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
            return JobEnd(FAILED, problem)
        self.attempt = f"{self.job.restarts}.{self.number}"
        began = self.clock.monotonic()
        if failure := self._prepare_with_retries():
            return self._end_resumable(failure)
        self._start_guard()
        waited = self.clock.monotonic() - began >= HOLDER_ENDS_S and not self.options.single_attempt
        if waited and (requeue := policy.check_before_start(self._query_job(), lead_s=self.options.signal_lead)):
            return requeue
        return self._decide_after(self._run_attempt())

    def _use_nodes(self, hosts: tuple[str, ...]) -> None:
        """Let the ranks have these nodes of the allocation; the others are spares, or gone."""
        ranks = self.job.ranks_per_node * len(hosts)
        self.job = self.job._replace(hosts=hosts, head=hosts[0], host_list=",".join(hosts), world_size=ranks)

    def _name_nodes(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the variables by which srun uses these nodes; none without spares."""
        if not self.options.spares:
            return {}
        nodes, ranks = str(len(hosts)), str(self.job.ranks_per_node * len(hosts))
        values = {variables.HOSTS: " ".join(hosts), "SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
        return {**values, "SLURM_NTASKS": ranks, "SLURM_NPROCS": ranks}

    def _start_guard(self) -> None:
        """Have a guard of this node on another one, if there are spares: Slurm does not requeue such a job."""
        others = (node for node in self.nodes if node != self.job.host and node not in self.gone)
        node = next(others, "") if self.options.spares else ""
        if node != self.guarded_from:
            self.guarded_from = node
            self.guard(node)

    def _run_attempt(self) -> Result:
        """Run the ranks to their end; return the result."""
        folder = self.job.run.attempt(self.job.job_id, self.attempt)
        self.checkpoint = self._newest_checkpoint
        self._record(
            events.AttemptStart(
                nodes=self.job.host_list,
                log_offset=self.log_size(),
                allocated=self.allocated,
                queued=self.queued,
                checkpoints=self.options.checkpoints and str(Path.cwd() / self.options.checkpoints),
                memory_mb=parse_number(self.environ.get("SLURM_MEM_PER_NODE", "")) or None,
                job_name=self.environ.get("SLURM_JOB_NAME", ""),
                errors_offset=output_size(2),
            )
        )
        waiting = [node for node in self.nodes if node not in {*self.job.hosts, *self.gone}]
        spare = f", spare: {', '.join(waiting)}" if waiting else ""
        output = "" if self.options.own_launch else f", output of the ranks in {folder}"
        self.say(f"{self._name}, on {self.job.host_list}{spare}{output}")
        if waiting and not self.number and variables.SKIP_PREFLIGHT not in self.environ:
            threading.Thread(target=self._check_spares, args=(waiting, folder / "spare"), daemon=True).start()
        from slurmddp.batch.watch import Watch  # noqa: PLC0415 - needed only to start the ranks

        watch = Watch(self.options, self.job, self.slurm, say=self.say, record=self._record)
        environment = self._build_environment(folder)
        environment |= watch.start(environment)
        status = self.launch(environment)
        result = watch.stop(attempts.read_result(self.job, self.attempt, status, own_launch=self.options.own_launch))
        self.gone.update(watch.lost)
        self.say(f"{self._name}, ended with status {result.status}: {result.reason}")
        self._record(events.AttemptEnd(status=result.status, reason=result.reason))
        if not self.options.single_attempt and self._may_speak_against_nodes(result):
            self.judge_nodes(self.attempt)
        if self.finish and result.status != FENCED:
            left = [host for host in self.job.hosts if host not in self.gone]
            self.finish({**environment, **self._name_nodes(left), variables.STATUS: str(result.status)})
        return result

    def _check_spares(self, spares: Sequence[str], mark: Path) -> None:
        """Let each spare do what a rank does first; it is not used if it cannot, and this node can."""
        from slurmddp.watchdog.nodes import look_at_nodes  # noqa: PLC0415 - few jobs have spares

        words = [sys.executable, *run_words(sys.executable), "slurmddp.runtime.health.facts", str(mark)]
        asked = look_at_nodes(self.job.number, [self.job.host, *spares], words, os.environ, limit_s=TIMEOUT_S)
        (here, own, silence), *others = asked
        for node, found, error in others:
            if not silence and (error or found != own):
                said = [line for line in error.split("; ") if not line.startswith("srun: error: ")]
                what = (said or [error])[-1] or f"its versions are {found[0]}, and {own[0]} on {here}"
                self.say(f"ERROR: {node} is not used as a spare: {what}")
                self._record(Found("spare", "error", node, what, ""))
                self.gone.add(node)

    def _may_speak_against_nodes(self, result: Result) -> bool:
        """Return whether an attempt failed, or a rank of it was slow, or a check has found something."""
        if result.status not in (DONE, STOPPED):
            return result.status != FENCED
        from slurmddp.runs.history import read_newest  # noqa: PLC0415 - every start would pay for it

        history = read_newest(self.job.run, size=2**22)  # a straggler is named again every ten minutes
        return any(event.attempt == self.attempt for event in (*history.all("straggler"), *history.all("finding")))

    def _decide_after(self, result: Result) -> Action:
        """Return the action that follows from a result."""
        if self.options.single_attempt:
            return JobEnd(*result)
        if self.options.own_launch and result.status == FAILED and (lost := self.slurm.lost_nodes(self.job.host_list)):
            return policy.requeue_after_loss(lost)
        if action := policy.decide_by_result(result):
            return action
        job = self._query_job()
        lost = tuple({*self.slurm.lost_nodes(self.job.host_list), *self.gone.intersection(self.job.hosts)})
        bad = [node for node in self._find_bad_nodes(job) if node in self.job.hosts]
        if self._take_spares({*lost, *bad}):
            return policy.check_before_start(job, lead_s=self.options.signal_lead) or AttemptRestart(*result)
        self.failures = 1 if self._newest_checkpoint != self.checkpoint else self.failures + 1
        return policy.decide_after_crash(
            result,
            job,
            lost,
            bad_nodes=bad,
            failures=self.failures,
            max_restarts=self.options.max_restarts,
            lead_s=self.options.signal_lead,
        )

    def _take_spares(self, gone: set[str]) -> bool:
        """Let spares take the place of nodes; return whether there were some, and enough."""
        if not gone or not self.options.spares:
            return False
        self.gone |= gone
        down = self.slurm.lost_nodes(",".join(self.nodes))
        if hosts := policy.choose_nodes(self.nodes, {*self.gone, *down}, len(self.job.hosts)):
            new = ", ".join(node for node in hosts if node not in self.job.hosts)
            self.say(f"the ranks start again without {', '.join(sorted(gone))}, in whose place is now {new}")
            self._use_nodes(hosts)
        return bool(hosts)

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
            if why := self._explain_fenced(job):
                raise FencedError(why)
            left_s = policy.time_left_s(job)
            self.ends_at = None if left_s is None else self.clock.time() + left_s
            self.allocated, self.queued = (one.timestamp() if one else None for one in (job.started, job.submitted))
            return job

    def _explain_fenced(self, job: JobInfo) -> str:
        return policy.check_fenced(job, restarts=self.job.restarts, host=self.job.host)

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
            self._take_training()
            self.first_checkpoint = "none"
            self.say(f"started over; the earlier state of the run is in {aside}")
        folder = self.job.run.attempt(self.job.job_id, self.attempt)
        if folder.exists():  # another cluster's job of the same number has left it
            folder.rename(f"{folder}.before-{time.time_ns()}")
        folder.mkdir(parents=True)
        if self.job.run.training != "checkpoints":
            self.job.run.training_note(self.job.job_id, self.attempt).write_text(self.job.run.training)
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
        values |= self._name_nodes(self.job.hosts)
        if self.options.own_launch:
            values[variables.TRAINING] = self.job.run.training
        if self.options.repeated_launch:
            values[variables.SKIP_TRACKER_IDS] = "1"
        values |= attempts.build_resume_variables(self.job, self.attempt, self.options.checkpoints)
        if values[variables.RESTARTS] == "1" and not find_saved(self.job.run, self.options.checkpoints):
            self.say(
                "slurmddp knows no checkpoint of this run: the program starts as before, and may load one of its own"
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

    def _requeue(self, wanted: JobRequeue) -> Action:
        """Requeue the job, which ends this process; return the end of the job when it cannot be requeued."""
        job = self._query_job()
        if job.requeue is False:
            return self._end_resumable(f"{wanted.reason}. The job may not be requeued (Requeue=0)")
        if not job.preempted:  # a preemption without a grace time is not counted either: Slurm requeues the job itself
            left_s = policy.time_left_s(job)
            is_signalled = left_s is not None and left_s <= self.options.signal_lead + policy.EARLY_S
            now = Requeued(progressed=self._newest_checkpoint != self.first_checkpoint, at_time_limit=is_signalled)
            past: list[Requeued] = []
            with suppress(OSError):
                past = [Requeued.parse(line) for line in self.requeues.read_text(errors="replace").splitlines()]
            if refused := policy.check_requeue(past, now, limit=self.options.max_requeues):
                return self._end_resumable(f"{wanted.reason}. {refused}")
            with suppress(OSError), self.requeues.open("a") as file:  # with a full disk it is not counted
                file.write(f"{now}\n")
        asked, bad_nodes = names_in(job.required_nodes), self._find_bad_nodes(job)
        for node in asked.intersection(wanted.excluded):
            self.say(f"{node} cannot be excluded: --nodelist asks for it")
        for node, why in bad_nodes.items():
            self.say(f"the next start leaves out {node}: {why}")
        nodes = tuple(dict.fromkeys(node for node in (*wanted.excluded, *bad_nodes) if node not in asked))
        self.say(f"back into the queue: {wanted.reason}")
        self._record(wanted._replace(excluded=nodes))
        said = self._order_requeue(nodes, job)
        return self._end_resumable(f"Slurm has not requeued the job ({said})")

    def _find_bad_nodes(self, job: JobInfo) -> Mapping[str, str]:
        """Return the nodes that a requeue leaves out, and what speaks against each."""
        from slurmddp.runs import node_evidence, node_store  # noqa: PLC0415 - every start would pay for it

        evidence = node_store.read_evidence(self.job.cluster) if self.options.avoid else []
        now = self.clock.time()
        if not any(suspect.is_proved for suspect in node_evidence.find_suspects(evidence, now)):
            return {}
        found = node_evidence.nodes_to_avoid(
            evidence,
            now,
            self.slurm.partition_nodes(job.partition),
            wanted=names_in(job.required_nodes),
            left_out=names_in(job.excluded_nodes),
            needed=len(self.nodes),
        )
        return {suspect.node: suspect.describe(now) for suspect in found}

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
        for _ in range(EXCLUDE_TRIES):
            try:
                self.slurm.update(self.job.job_id, "ExcNodeList", listed)
            except ClusterError as error:  # as "the DB index is being set, try again in a bit"
                said = f"{', '.join(nodes)} could not be excluded: {error}"
                self.clock.sleep(1.0)
            else:
                raise SystemExit(STOPPED)  # TERM was ignored, so this process must end by itself
        self.say(said)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _end_resumable(self, reason: str) -> JobEnd:
        """Return the end of a job that could not be requeued, and can be submitted again."""
        newest = self._newest_checkpoint
        state = "it has no checkpoint" if newest == "none" else f"its newest checkpoint is {newest}"
        resume = " with the arguments that resume it" if self.options.checkpoints else ""
        return JobEnd(STOPPED, f"{reason}: {state}; submit {self.job.run.job_name} again{resume} to go on")

    @property
    def _newest_checkpoint(self) -> str:
        return read_progress_mark(self.job.run, self.options.checkpoints, self.job.job_id)

    def _finish(self, action: JobEnd | Fenced) -> int:
        """Log why the job ends and release the run; return the exit status of the batch script."""
        if isinstance(action, Fenced):
            self.say(f"{self._name}, writes nothing more: {action.reason}")
            self._record(action)
            return FENCED
        what = f"{'the launch of ' * self.options.own_launch}job {self.job.job_id}"
        self.say(f"{what} ends with status {action.status}: {action.reason}")
        self._record(action)
        if self.done and action.status == DONE:
            with suppress(OSError):
                self.done.write_text("done")
        if self.owner:
            self.owner.release()
        with suppress(ClusterError):
            job = None if self.options.single_attempt else self.slurm.job(self.job.job_id)
            if job and action.status == DONE and (job.preempted or self.job.restarts):
                # from 24.05 on, a job that ends within its grace time counts as preempted, whatever its exit status; on
                # 24.11 also one that was requeued within it: jobs that wait for its success would never start
                for dependent in self.slurm.release_dependents(self.job.job_id):
                    self.say(f"job {dependent} now waits for the end of this job: Slurm may count it as preempted")
            is_failed = action.status != DONE and not self.options.own_launch
            if job and is_failed and job.expedited and not self._explain_fenced(job):
                self.slurm.update(self.job.job_id, "Requeue", "0")  # else it is held in the queue, and not FAILED
        return action.status

    @property
    def _name(self) -> str:
        return f"job {self.job.job_id}, attempt {self.attempt}"

    def _record(self, event: SupervisorEvent) -> None:
        author = Author(job=self.job.job_id, attempt=self.attempt, host=self.job.host)
        events.append(self.job.run, author, event)
        self.tell(self.attempt, event)
