"""Job -> script -> sbatch -> id, and the record of it in the run's folder. Nothing is left behind by a refusal."""

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import tomli_w

from slurmddp.cluster.limits import problems, waits_for_nodes
from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs import origin
from slurmddp.runs.history import is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions
from slurmddp.script import snapshot
from slurmddp.script.build import check_program, script
from slurmddp.script.snapshot import Code, code_of
from slurmddp.slurm import queries, sbatch_command
from slurmddp.slurm.client import LostAnswerError, RefusedError
from slurmddp.slurm.job_info import JobId, JobInfo
from slurmddp.slurm.pending_reasons import warning
from slurmddp.slurm.time import slurm_time
from slurmddp.submission.compatibility import check_same
from slurmddp.submission.prepare_data import prepare
from slurmddp.submission.sbatch import Handover, Notice, Submitted
from slurmddp.version import __version__

_REMEMBERED: Final = 20
_ALL_THE_SAME: Final = "--force submits it all the same"
_AT_ONCE: Final = timedelta(minutes=2)
_BELIEVED: Final = timedelta(days=366)
"""Behind a job without a time limit Slurm expects a start in centuries."""
_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def submit(
    request: Request,
    *,
    change: bool,
    environ: Mapping[str, str],
    notice: Notice,
    chain: int = 0,
    force: bool = False,
    is_claimed: bool = False,
    accepted: Callable[[Submitted], None] = lambda _: None,
) -> Submitted:
    """Submit a job and record it; `change` allows a run to go on with another command.

    `chain` more jobs of the same script follow, each when the one before it has ended, however that was. `force`
    submits what seems never to start. `notice` gets what sbatch says beside the id, when Slurm expects the job to
    start, and what the site has changed. Raises UsageError when the request is wrong by itself or the run is
    another's, ClusterError when the cluster rules it out or Slurm refuses. `accepted` hears of the jobs at once, and
    what would end this process waits until it has: else a job could be forgotten. `is_claimed` is for a caller that
    holds the run by `RunDir.claimed` itself.
    """
    spec, notice = request.resolved.spec, _unfailing(notice)
    _check_can_queue(spec)
    for program in request.programs:
        check_program(program)
    code, run = code_of(spec), _run_of(spec)
    handover = Handover(
        run=run,
        script=script(spec, code, request.array),
        spec=_described(request.resolved),
        code=code.digest if code else None,
        array=request.array,
        environ=environ,
        notice=notice,
    )
    _check(request, run, change=change, environ=environ)
    if not force:
        _check_limits(request)
    for program in request.programs:
        prepare(program)
    start = None if force else _ask_slurm(request, handover.script, environ, notice)
    with _nothing_left(run, code) as folder, nullcontext() if is_claimed else run.claimed():
        _check_idle(request, run, environ)
        _disown(run)
        _tell_state(spec, run, code, notice)
        folder.keep_code()
        with _uninterrupted():
            first = handover.submit()
            folder.is_needed = True
            done = _chained(first, chain, handover)
            accepted(done)
        if start and start - datetime.now(UTC) < _BELIEVED and not spec.hold and not spec.dependency:
            notice(f"Slurm expects it to start {_when(start)}")
        _tell_changes(spec, first.job_id, environ, notice)
    return done


def dry_run(request: Request, *, change: bool, environ: Mapping[str, str], force: bool = False) -> tuple[bytes, str]:
    """Return the script, and what sbatch says to it; raise what `submit` would, and write nothing."""
    resolved = request.resolved
    _check_can_queue(resolved.spec)
    text, run = script(resolved.spec, array=request.array), _run_of(resolved.spec)
    _described(resolved)
    _check(request, run, change=change, environ=environ)
    _check_idle(request, run, environ)
    if not force:
        _check_limits(request)
    return text, sbatch_command.test_only(text, environ)


def _unfailing(notice: Notice) -> Notice:
    """Return a notice that a closed terminal does not hinder: what it is about goes on."""

    def tell(line: str) -> None:
        with suppress(OSError):
            notice(line)

    return tell


@dataclass
class _Folder:
    """The run's folder while a job is submitted."""

    run: RunDir
    code: Code | None
    copy: Path | None = None
    """The copy of the code that was made for this job."""
    is_needed: bool = False
    """Whether a job is in the queue that needs it."""

    def keep_code(self) -> None:
        """Make sure of a copy of the job's code."""
        if self.code:
            self.copy = snapshot.keep(self.code, self.run)


@contextmanager
def _nothing_left(run: RunDir, code: Code | None) -> Iterator[_Folder]:
    """Make the run's folder, and take back what was made when the job is refused.

    A job whose answer was lost may be in the queue, and would need it; after any error but a refusal, the copy too.
    """
    folder = _Folder(run, code)
    created = run.create()
    try:
        yield folder
    except LostAnswerError:
        raise
    except BaseException as error:
        if folder.copy and isinstance(error, ClusterError) and not folder.is_needed:
            snapshot.discard(folder.copy)
        if created and not folder.is_needed:
            run.remove_unused(created)
        raise


def _ask_slurm(request: Request, text: bytes, environ: Mapping[str, str], notice: Notice) -> datetime | None:
    """Return when Slurm expects the job to start, None when it does not say; raise ClusterError when it refuses."""
    try:
        start = sbatch_command.expected_start(sbatch_command.test_only(text, environ))
    except LostAnswerError:
        start = None
    except RefusedError as error:
        if not (request.cluster and waits_for_nodes(request.resolved.spec, request.cluster)):
            raise ClusterError(f"{error}; {_ALL_THE_SAME}") from error
        notice(f"the job waits for nodes that are down or drained now ({error})")
        return None
    _check_known(request)
    return start


def _check_known(request: Request) -> None:
    """Refuse to guess how many ranks and GPUs a job is to have that leaves them to a cluster that does not say."""
    spec = request.resolved.spec
    if request.silence and not (spec.gpus_per_node or spec.ntasks_per_node):
        raise ClusterError(
            f"what a node has is not known ({request.silence}); give --gpus-per-node or --ntasks-per-node"
        )


def _check_limits(request: Request) -> None:
    """Refuse what no part of the cluster can ever give."""
    found = problems(request.resolved.spec, request.cluster) if request.cluster else ()
    if found:
        raise ClusterError("; ".join((*found, _ALL_THE_SAME)))


def _when(start: datetime) -> str:
    """Return a time for people; the clocks of two machines differ a little."""
    return "at once" if start - datetime.now(UTC) < _AT_ONCE else f"at {start:%Y-%m-%d %H:%M}"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and the like wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_of(spec: JobSpec) -> RunDir:
    return RunDir.named(spec.runs_dir, spec.job_name)


def _described(resolved: Resolved) -> bytes:
    """Return the text of spec.toml."""
    table = resolve.recorded(resolved, directory=str(Path.cwd()), version=__version__)
    try:
        return tomli_w.dumps(table).encode()
    except UnicodeEncodeError as error:
        given = ascii(error.object[error.start : error.end])
        raise UsageError(f"a value holds bytes that are no UTF-8 text ({given}); only COMMAND may") from error


def _check_can_queue(spec: JobSpec) -> None:
    if spec.launcher == "manual":
        raise UsageError(
            "--launcher manual is not for the queue; type `slurmddp render --launcher manual ...` and what it prints"
        )


def _check(request: Request, run: RunDir, *, change: bool, environ: Mapping[str, str]) -> None:
    resolved = request.resolved
    for item in resolved.spec.env:
        if "=" not in item and item not in environ:
            raise UsageError(f"--env {item}: {item} is not set here; export it, or give --env {item}=VALUE")
    _check_kind(request, run)
    if not change and not resolved.spec.reset:
        check_same(run, resolved)


def _check_idle(request: Request, run: RunDir, environ: Mapping[str, str]) -> None:
    """Refuse a second job for a run that one is queued or running for, unless it depends on that one.

    An array may have several: it has been made of the runs that have none.
    """
    spec = request.resolved.spec
    for job in () if request.array else unfinished(run, environ):
        if job.job_id not in re.findall(r"\d+", spec.dependency or "") and spec.dependency != "singleton":
            raise UsageError(
                f"run {run.path.name} belongs to job {job.job_id}, which is {job.state}; wait for it, cancel it with "
                f"`slurmddp cancel {job.job_id}`, or choose another --name"
            )


def _check_kind(request: Request, run: RunDir) -> None:
    for last in submissions(run)[-1:]:
        if ("settings" in last) != (request.array is not None):
            what = "a sweep; `slurmddp sweep` goes on with it" if "settings" in last else "one job, and no sweep"
            raise UsageError(f"run {run.path.name} is {what}; choose another --name")


def unfinished(run: RunDir, environ: Mapping[str, str]) -> list[JobInfo]:
    """Return the run's jobs that are queued or running, told by their script from others of the same number.

    Of a copy they are none of the original's. Raises ClusterError when the controller does not answer.
    """
    records = {record["job"]: record for record in submissions(run)[-_REMEMBERED:]}
    known = queries.jobs(list(records), environ) if records else []
    waiting = [job for job in known if not job.has_ended and job.job_id in records]
    own = [job for job in waiting if not origin.of(run, records[job.job_id]).elsewhere]
    return [job for job in own if queries.script_digest(job.job_id, environ) == records[job.job_id].get("sha256")]


def _disown(run: RunDir) -> None:
    """Take out of a copy the word that it belongs to a job of the original, by which its own would start nothing."""
    with suppress(OSError, IndexError):
        holder = run.owner.read_text().split()[1]
        if any(record["job"] == holder and origin.of(run, record).elsewhere for record in submissions(run)):
            run.owner.unlink()


def changes(spec: JobSpec, job: JobInfo) -> Iterator[str]:
    """Yield a line for each thing that matters and that Slurm has accepted otherwise than it was asked for."""
    if spec.requeue and not job.requeue:
        yield (
            f"job {job.job_id} was accepted with Requeue=0: once preempted or told to stop it does not come back by "
            "itself; `--chain N` queues N jobs that go on in its place"
        )
    asked_s, limit_s = spec.time_s, job.limit_s
    limit = "UNLIMITED" if limit_s is None else slurm_time(limit_s)
    pairs = (
        ("partition", spec.partition, job.partition, job.partition not in _partitions(spec)),
        ("time limit", spec.time, limit, asked_s != limit_s and -(-(asked_s or 0) // 60) * 60 != limit_s),
        ("number of nodes", spec.nodes, job.node_count, spec.nodes != job.node_count),
    )
    for what, asked, given, differs in pairs:
        if asked and given and differs:
            yield f"job {job.job_id} was accepted with the {what} {given} where {asked} was asked for"


def _partitions(spec: JobSpec) -> list[str]:
    """Return those that the job may start in: before it does, all of them are shown, together."""
    return [*(spec.partition or "").split(","), spec.partition or ""]


def _tell_changes(spec: JobSpec, job_id: JobId, environ: Mapping[str, str], notice: Notice) -> None:
    """Look at what became of the request; the job is in the queue, so nothing here may fail."""
    with suppress(ClusterError):
        for job in queries.show(job_id.number, environ)[:1]:
            for line in (*changes(spec, job), *_waits(spec, job)):
                notice(line)


def _waits(spec: JobSpec, job: JobInfo) -> Iterator[str]:
    """Yield why a job may wait for ever, where Slurm knows it already and nobody has held it on purpose."""
    why = warning(job.reason, job.job_id) if job.state == "PENDING" and not spec.hold else ""
    if why:
        yield f"job {job.job_id} waits ({job.reason}): {why}"


def _tell_state(spec: JobSpec, run: RunDir, code: Code | None, notice: Notice) -> None:
    """Say so when the run goes on with other code than its last job has, and when it is finished."""
    for last in submissions(run)[-1:]:
        if code and last.get("code") not in (None, code.digest):
            said = f"run {run.path.name} goes on with the code as it is now, {code.digest}"
            notice(f"{said}; job {last['job']} has {last['code']}")
    if is_finished(run) and not spec.reset:
        notice(f"run {run.path.name} is finished: the job will only run its end again; --reset starts over")


def _chained(first: Submitted, count: int, handover: Handover) -> Submitted:
    """Submit the jobs that take over; a refusal leaves those that were accepted."""
    chain, broken, last = [], "", first
    for _ in range(count):
        if last.unrecorded:  # it could be taken for the next one, whose script is the same
            break
        try:
            last = handover.submit(after=last.job_id.number)
        except ClusterError as error:
            broken = str(error)
            break
        chain.append(last.job_id)
    return replace(first, chain=tuple(chain), unrecorded=last.unrecorded, broken=broken)
