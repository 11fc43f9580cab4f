"""The life of one job, from its batch script's `exec` to its end: see docs/life-of-a-job.md.

Slurm, the clock, the launcher of the ranks and the log are passed in. No signal handler is installed: `scancel` ends
this process at once, and `requeue Incomplete` does nothing to a job that was cancelled.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from slurmddp import variables
from slurmddp.batch import attempt as attempts
from slurmddp.batch import policy
from slurmddp.batch.arguments import Options
from slurmddp.batch.attempt import Job
from slurmddp.batch.controller import RefusedError
from slurmddp.batch.policy import Action, End, Ending, Fence, Requeue, Requeued, Restart, Start
from slurmddp.errors import ClusterError
from slurmddp.exit_codes import FAILED, FENCED, RETRYABLE, STOPPED
from slurmddp.runs import events
from slurmddp.runs.events import Author, OfBatch
from slurmddp.runs.layout import write_whole
from slurmddp.runs.ownership import Claim, HeldError, Ownership
from slurmddp.runs.submissions import is_being_submitted, record_by_hand, submissions
from slurmddp.slurm.job_info import JobInfo

ASK_AGAIN_S: Final = 10.0
HOLDER_ENDS_S: Final = 5.0
DISK_S: Final = 60.0
DISK_TRIES: Final = 10
REQUEUE_TRIES: Final = 30
KILL_COMES_S: Final = 60.0
"""After a requeue Slurm ends this process well within this time."""


class Slurm(Protocol):
    """What is asked of Slurm: `slurmddp.batch.controller.Controller`, or a stand-in of a test."""

    def job(self, job_id: str) -> JobInfo | None: ...  # noqa: D102 - see Controller
    def requeue(self, job_id: str) -> None: ...  # noqa: D102
    def exclude(self, job_id: str, nodes: str) -> None: ...  # noqa: D102
    def lost_nodes(self, host_list: str) -> tuple[str, ...]: ...  # noqa: D102
    def hostnames(self, host_list: str) -> tuple[str, ...]: ...  # noqa: D102
    def address(self, node: str) -> str: ...  # noqa: D102
    def script_digest(self, job_id: str) -> str | None: ...  # noqa: D102


class Clock(Protocol):
    """`time`, or a clock of a test."""

    def time(self) -> float: ...  # noqa: D102
    def sleep(self, seconds: float, /) -> None: ...  # noqa: D102


Launch = Callable[[Mapping[str, str]], int]
"""Starts the ranks with an environment, waits for them, and returns the launcher's status."""
Finish = Callable[[Mapping[str, str]], object]
"""Runs the lines of a template's `finish` block with an environment."""


class _FencedError(Exception):
    """Another attempt owns the job or the run."""


class Supervisor:
    """One job under supervision."""

    def __init__(  # noqa: PLR0913 - all that is passed in, by name
        self,
        *,
        options: Options,
        job: Job,
        environ: Mapping[str, str],
        slurm: Slurm,
        launch: Launch,
        finish: Finish | None = None,
        clock: Clock = time,
        say: Callable[[str], None] = print,
        log_size: Callable[[], int] = lambda: 0,
    ) -> None:
        """Begin; `environ` is that of the ranks, `say` writes to the batch log, and `log_size` is its size in bytes."""
        self.options, self.job, self.environ, self.slurm, self.launch = options, job, environ, slurm, launch
        self.finish, self.clock, self.say, self.log_size = finish, clock, say, log_size
        self.born = clock.time()
        self.attempt = job.attempt(0)
        self.number = 0
        """Of the attempt in this allocation."""
        self.failures = 0
        """Attempts that failed in a row without progress."""
        self.started = 0.0
        self.checkpoint = "none"
        """The newest one when the attempt started."""
        self.ends_at: float | None = None
        """When the time limit ends the job."""
        self.allocated: float | None = None
        self.owner: Ownership | None = None

    def run(self) -> int:
        """Supervise the job, and return the status that the batch script ends with."""
        try:
            action = self._first()
            while not isinstance(action, End | Fence):
                action = self._perform(action)
        except _FencedError as fenced:
            action = Fence(str(fenced))
        except OSError as error:
            action = End(RETRYABLE, f"{error.filename or self.job.run.path}: {error.strerror}")
        return self._leave(action)

    def _perform(self, action: Start | Restart | Requeue) -> Action:
        """Do what was decided, and return what follows."""
        if isinstance(action, Requeue):
            return self._requeue(action)
        if isinstance(action, Restart):
            self._record(events.Restart(status=action.ending.status, reason=action.ending.reason))
            self.number += 1
        return self._start()

    def _first(self) -> Action:
        """Return what to do when the batch script begins."""
        if problem := self._problem():
            return End(FAILED, problem)
        if self.options.single_attempt:
            return Start()
        if (
            self.job.restarts == 0
        ):  # there may be one of a job of the same number, from before the cluster was set up anew
            with suppress(OSError):
                self._requeues.unlink(missing_ok=True)
        job = self._look()
        if self.options.record:
            with suppress(OSError):
                self._record_if_by_hand(job)
        return policy.first(job, lead_s=self.options.signal_lead, margin_s=self.options.signal_margin)

    def _record_if_by_hand(self, job: JobInfo) -> None:
        """Write the job down that nobody has: `slurmddp submit` records its own, and those of a sweep in its folder."""
        run = self.job.run.sweep or self.job.run
        number = self.job.job_id.partition("_")[0]
        if is_being_submitted(run) or any(record["job"] == number for record in submissions(run)):
            return
        submitted = job.submitted or datetime.fromtimestamp(self.born, UTC)
        when = submitted.astimezone(UTC).isoformat(timespec="seconds")
        record_by_hand(run, number, time=when, sha256=self.slurm.script_digest(number))

    def _problem(self) -> str:
        """Return why no rank can be started; empty when nothing is wrong."""
        for name in self.options.require_env:
            if name not in self.environ:
                return f"{name} must be set where the job is submitted"
        code = self.environ.get(variables.CODE)
        if code and not Path(code).is_dir():
            return f"{code} is missing; it is made by slurmddp submit"
        return "" if self.job.head else f"scontrol names no host of {self.job.host_list}"

    def _start(self) -> Action:
        """Make one attempt, and return what follows from its end."""
        self.attempt = self.job.attempt(self.number)
        began = self.clock.time()
        if failure := self._retry_while_disk_full(self._prepare):
            return self._stay(failure)
        waited = self.clock.time() - began >= HOLDER_ENDS_S and not self.options.single_attempt
        if waited and (requeue := policy.before_start(self._look(), lead_s=self.options.signal_lead)):
            return requeue
        return self._after(self._attempt())

    def _attempt(self) -> Ending:
        """Start the ranks, wait for them, and return how they ended."""
        folder, run = self.job.run.attempt(self.job.job_id, self.attempt), self.job.run
        self.started, self.checkpoint = self.clock.time(), attempts.newest_checkpoint(run)
        self._record(
            events.AttemptStart(nodes=self.job.host_list, log_offset=self.log_size(), allocated=self.allocated)
        )
        self.say(f"{self._name}, on {self.job.host_list}, output of the ranks in {folder}")
        environment = self._rank_environment(folder)
        status = self.launch(environment)
        ending = attempts.read_ending(self.job, self.attempt, status)
        self.say(f"{self._name}, ended with status {ending.status}: {ending.reason}")
        self._record(events.AttemptEnd(status=ending.status, reason=ending.reason))
        if self.finish and ending.status != FENCED:
            self.finish(variables.with_old_names({**environment, variables.STATUS: str(ending.status)}))
        return ending

    def _after(self, ending: Ending) -> Action:
        """Return what follows from how the ranks ended."""
        if self.options.single_attempt:
            return End(ending.status, ending.reason)
        if action := policy.after_attempt(ending):
            return action
        job = self._look()
        self._count_failure()
        lost = self.slurm.lost_nodes(self.job.host_list)
        crash = policy.Crash(self.failures, self.options.max_restarts)
        return policy.after_crash(ending, job, lost, crash, lead_s=self.options.signal_lead)

    def _count_failure(self) -> None:
        """Count attempts that failed in a row; a new checkpoint, or ten minutes alive, starts the count again."""
        lived = self.clock.time() - self.started >= policy.HEALTHY_S
        if lived or attempts.newest_checkpoint(self.job.run) != self.checkpoint:
            self.failures = 0
        self.failures += 1

    def _look(self) -> JobInfo:
        """Ask Slurm for the job until it answers: a node that is cut off from the controller starts nothing.

        Raises _FencedError when the job is not this process's any more.
        """
        while True:
            try:
                job = self.slurm.job(self.job.job_id)
            except ClusterError as error:
                self.say(f"Slurm does not answer, asking again in {ASK_AGAIN_S:.0f} s: {error}")
                self.clock.sleep(ASK_AGAIN_S)
                continue
            if job is None:
                raise _FencedError("Slurm does not know the job any more")
            if found := policy.fence(job, restarts=self.job.restarts, host=self.job.host):
                raise _FencedError(found.reason)
            left_s = policy.left_s(job)
            self.ends_at = None if left_s is None else self.clock.time() + left_s
            self.allocated = job.started.timestamp() if job.started else None
            return job

    def _retry_while_disk_full(self, work: Callable[[], None]) -> str:
        """Do work in the run's folder, again and again while the disk is full; return why it could not be done."""
        for tries in range(DISK_TRIES + 1):
            try:
                work()
            except OSError as error:
                failure = f"{self.job.run.path} cannot be written to: {error.strerror}"
                if tries < DISK_TRIES:
                    self.say(f"{failure}; trying again in {DISK_S:.0f} s")
                    self.clock.sleep(DISK_S)
            else:
                return ""
        return failure

    def _prepare(self) -> None:
        """Own the run, and make the attempt's folder. Raises OSError where the run's folder cannot be written to."""
        self._own()
        if not (ignored := self.job.run.path / ".gitignore").exists():
            write_whole(ignored, b"*\n")
        if self.options.reset is not None and (aside := attempts.reset(self.job.run, self.options.reset)):
            self.say(f"started over; what the run had before is in {aside}")
        attempts.make_folder(self.job.run.attempt(self.job.job_id, self.attempt))

    def _own(self) -> None:
        self.owner = Ownership(self.job.run.owner, str(self._claim))
        try:
            self.owner.take(self._check_replaceable)
        except HeldError as error:
            raise _FencedError(str(error)) from error

    @property
    def _claim(self) -> Claim:
        return Claim(self.job.cluster, self.job.job_id, self.attempt)

    def _check_replaceable(self, line: str) -> None:
        """Return when the holder is an earlier attempt, or has ended. Raises _FencedError when it must keep the run."""
        holder = Claim.parse(line)
        if holder is None:
            return
        if holder.cluster != self.job.cluster:
            raise _FencedError(
                f"the run belongs to job {holder.job} of cluster {holder.cluster}, which cannot be asked here; "
                f"if that job is gone, remove {self.job.run.owner}"
            )
        if holder.job == self.job.job_id:
            if not self._claim.is_later_than(holder):
                raise _FencedError(f"the job's later attempt {holder.attempt} owns the run")
        elif state := self._state_of(holder.job):
            raise _FencedError(f"the run belongs to job {holder.job}, which is {state}")

    def _state_of(self, job_id: str) -> str:
        """Return the state of another job that is queued or running; wait for one that is just ending."""
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
            self.say(f"asking again in {HOLDER_ENDS_S:.0f} s for the end of job {job_id}, which holds the run: {said}")
            self.clock.sleep(HOLDER_ENDS_S)

    def _rank_environment(self, folder: Path) -> dict[str, str]:
        used = attempts.used_ports()
        port, store = attempts.choose_ports(self.job, self.number, self.options.port_range, used.__contains__)
        values = {
            variables.ATTEMPT: self.attempt,
            variables.ATTEMPT_DIR: str(folder),
            variables.OWNER: str(self._claim),
            variables.RUN_DIR: str(self.job.run.path),
            variables.JOB_ID: self.job.job_id,
            variables.HEAD_ADDRESS: self.slurm.address(self.job.head),
            variables.STORE_PORT: str(store),
        }
        if self.options.rendezvous_file:
            values[variables.RENDEZVOUS_FILE] = f"file://{self.job.run.meeting(self.job.job_id, self.attempt)}"
        if self.ends_at is not None:
            values[variables.STOP_AT] = str(int(self.ends_at) - self.options.signal_lead)
        own = {"MASTER_ADDR": self.job.head, "MASTER_PORT": str(port)}
        own["OMP_NUM_THREADS"] = self.environ.get("OMP_NUM_THREADS") or str(attempts.threads(self.job, self.environ))
        return {**variables.with_old_names({**self.environ, **values}), **own}

    def _requeue(self, wanted: Requeue) -> Action:
        """Put the job back into the queue, which ends this process; return what follows where that cannot be."""
        job = self._look()
        if job.requeue is False:
            return self._stay(f"{wanted.reason}. The job may not be requeued (Requeue=0)")
        now = Requeued(attempts.newest_checkpoint(self.job.run), int(self.clock.time() - self.born))
        if refused := policy.may_requeue(self._past_requeues(), now, limit=self.options.max_requeues):
            return self._stay(f"{wanted.reason}. {refused}")
        self._count_requeue(now)
        nodes = self._excludable(wanted.lost_nodes, job)
        self.say(f"back into the queue: {wanted.reason}")
        self._record(events.Requeue(reason=wanted.reason, excluded=nodes))
        said = self._order_requeue(nodes, job)
        return self._stay(f"Slurm has not requeued the job ({said})")

    def _order_requeue(self, nodes: tuple[str, ...], job: JobInfo) -> str:
        """Let Slurm requeue the job; return what it says when it does not."""
        if nodes:  # ExcNodeList cannot be changed before, and the requeue sends TERM to this process
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        said = "no answer"
        for _ in range(REQUEUE_TRIES):
            try:
                self.slurm.requeue(self.job.job_id)
            except RefusedError as error:
                return str(error)
            except ClusterError as error:
                said = str(error)
                self.say(f"Slurm does not answer, asking again in {ASK_AGAIN_S:.0f} s: {said}")
                self.clock.sleep(ASK_AGAIN_S)
            else:
                said = "it has accepted the requeue, and has not ended the job"
                self._exclude(nodes, job)
                self.clock.sleep(KILL_COMES_S)
            self._check_still_here(nodes, job)
        return said

    def _check_still_here(self, nodes: tuple[str, ...], job: JobInfo) -> None:
        """Leave when the job is requeued, though the answer to that order was lost."""
        try:
            self._look()
        except _FencedError as error:
            self._exclude(nodes, job)
            raise SystemExit(STOPPED) from error

    def _exclude(self, nodes: tuple[str, ...], job: JobInfo) -> None:
        """Leave nodes out of the queued job, beside those that it left out before; leave when Slurm takes them."""
        if not nodes:
            return
        listed = ",".join([*([job.excluded_nodes] if job.excluded_nodes else []), *nodes])
        try:
            self.slurm.exclude(self.job.job_id, listed)
        except (RefusedError, ClusterError) as error:
            self.say(f"{', '.join(nodes)} could not be left out: {error}")
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        else:
            raise SystemExit(STOPPED)  # TERM, which is ignored, has come by now

    def _excludable(self, nodes: tuple[str, ...], job: JobInfo) -> tuple[str, ...]:
        """Return those nodes that `--nodelist` does not ask for."""
        asked = frozenset(self.slurm.hostnames(job.required_nodes)) if nodes and job.required_nodes else frozenset()
        for node in asked.intersection(nodes):
            self.say(f"{node} cannot be left out: --nodelist asks for it")
        return tuple(node for node in nodes if node not in asked)

    def _stay(self, reason: str) -> End:
        """Return the end of a job that is to go on, and cannot be requeued."""
        newest = attempts.newest_checkpoint(self.job.run)
        state = "it has no checkpoint" if newest == "none" else f"its newest checkpoint is {newest}"
        return End(STOPPED, f"{reason}: {state}; submit {self.job.run.job_name} again to go on")

    @property
    def _requeues(self) -> Path:
        return self.job.run.requeues(self.job.job_id)

    def _past_requeues(self) -> list[Requeued]:
        try:
            lines = [line.split() for line in self._requeues.read_text().splitlines()]
        except OSError:
            return []
        return [Requeued(line[0], int(line[1])) for line in lines if len(line) > 1 and line[1].isdecimal()]

    def _count_requeue(self, now: Requeued) -> None:
        """Add a line to the file that the next attempts read; a full disk loses it, and the count with it."""
        with suppress(OSError), self._requeues.open("a") as file:
            file.write(f"{now.checkpoint} {now.alive_s}\n")

    def _leave(self, action: End | Fence) -> int:
        """Say why the job ends, free the run, and return the status of the batch script."""
        if isinstance(action, Fence):
            self.say(f"{self._name}, writes nothing more: {action.reason}")
            self._record(events.Fenced(reason=action.reason))
            return FENCED
        self.say(f"job {self.job.job_id} ends with status {action.status}: {action.reason}")
        self._record(events.JobEnd(status=action.status, reason=action.reason))
        if self.owner:
            self.owner.release()
        return action.status

    @property
    def _name(self) -> str:
        return f"job {self.job.job_id}, attempt {self.attempt}"

    def _record(self, event: OfBatch) -> None:
        author = Author(job=self.job.job_id, attempt=self.attempt, host=self.job.host)
        events.append(self.job.run, author, event)


def write_line(text: str) -> None:
    """Write a line to the batch log, with the time and the product's name."""
    with suppress(OSError):  # a full disk must not end the job
        sys.stdout.write(f"{time.strftime('%FT%T%z')} slurmddp: {text}\n")
        sys.stdout.flush()


def size_of_output() -> int:
    """Return the size of the file that standard output goes to; 0 where it is none."""
    with suppress(OSError):
        return os.fstat(1).st_size
    return 0
