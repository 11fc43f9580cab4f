"""Submits a job: checks it, hands its script to sbatch, records it in the run's folder. A refusal leaves no files."""

import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import tomli_w

from slurmddp.cluster.limits import find_problems, names_no_partition, waits_for_nodes
from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.runs.facts import is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import hold_submission
from slurmddp.runs.resume import find_state
from slurmddp.runs.submissions import read_origin, submissions
from slurmddp.script import snapshot
from slurmddp.script.build import build_script, check_environment, check_program, check_variables
from slurmddp.script.environment import Environment, pack_environment, read_environment
from slurmddp.script.snapshot import Code, read_code
from slurmddp.slurm import client, commands, queries, sbatch_command
from slurmddp.slurm.client import LostAnswerError, RefusedError
from slurmddp.slurm.job_info import JobId, JobInfo
from slurmddp.slurm.pending_reasons import explain, warning
from slurmddp.slurm.values import LATEST_START, slurm_time
from slurmddp.submission.compatibility import check_idle, check_kind, check_same
from slurmddp.submission.prepare_data import prepare
from slurmddp.submission.submit_once import Handover, Notice, Submitted
from slurmddp.version import __version__

_FORCE_HINT: Final = "--force submits it all the same"
_AT_ONCE: Final = timedelta(minutes=2)
_REFUSED: Final = {
    "node name": ("nodelist", "exclude"),
    "number of nodes": ("nodes", "nodelist"),
    "node configuration": ("constraint", "nodelist", "exclude"),
    "dependency": ("dependency",),
    "feature": ("constraint",),
    "reservation": ("reservation",),
    "account": ("account", "partition", "qos"),
    "qos": ("qos", "partition"),
}
"""The options that a refusal by sbatch is about, by words of its message."""
_BY_CONTROLLER: Final = "allocation failure"
"""In each refusal by the controller; others are by sbatch itself, which no --force changes."""
_TOO_LONG: Final = "parameter too long"
_LARGE_SCRIPT_B: Final = 10**6
"""Other values that Slurm finds too long are shorter, and so is its limit for a script, max_script_size."""
_NO_NODE: Final = "Invalid node name"
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

    `chain` more jobs of the same script follow; each starts when the one before it has ended, whatever its end.
    `force` submits a job that seems never to start. `notice` gets what sbatch says beside the id, the expected start,
    and what the site has changed. `accepted` gets the jobs as soon as they are queued; a signal that would end this
    process is held back until then, so that no job is lost. A caller that holds the run by `RunDir.claimed` itself
    sets `is_claimed`. Raises UsageError when the request is wrong by itself or the run is another's, ClusterError
    when the cluster rules it out or Slurm refuses.

    The order matters: describe, check, act, report. Until the run's folder is made, nothing is written.
    """
    notice = _unfailing(notice)
    _check_request(request, environ)
    handover = _describe(request, environ, notice)
    run, code = handover.run, handover.code
    _check_run(request, run, change=change)
    if not force:
        check_environment(request.resolved.spec)
        _check_limits(request)
    for program in request.programs:
        prepare(program)
    start = None if force else _ask_slurm(request, handover.script, environ, notice)

    with made_folder(run) as folder, nullcontext() if is_claimed else hold_submission(run):
        replaced = check_idle(request, run, environ)
        _remove_copied_owner(run)
        _report_run_state(request, run, code, notice)
        if code:
            folder.code_copy = snapshot.copy_code(code, run)
        if handover.environment:
            _pack(handover.environment, request, notice)
        with _held_signals():
            first = handover.submit()
            folder.is_needed = True
            done = _submit_chain(first, chain, handover)
            accepted(done)
        _cancel_replaced(replaced, environ, notice)

    _report_start(request, start, notice)
    _report_changes(request, first.job_id, environ, notice)
    return done


def dry_run(
    request: Request, *, change: bool, environ: Mapping[str, str], force: bool = False, found: Sequence[UsageError] = ()
) -> tuple[bytes, str]:
    """Return the script, and what sbatch says to it; write nothing.

    Raises what `submit` would, with a line for each problem and not only for the first, those in `found` before.
    """
    problems: list[SlurmddpError] = list(found)
    with _noted(problems):
        _check_request(request, environ)
    handover = _describe(request, environ, lambda _: None)
    with _noted(problems):
        _check_run(request, handover.run, change=change)
    with _noted(problems):
        check_idle(request, handover.run, environ)
    if not force:
        with _noted(problems):
            check_environment(request.resolved.spec)
        with _noted(problems):
            _check_limits(request)
    said = ""
    with _noted(problems):
        said = _test(request, handover.script, environ)
        if (start := sbatch_command.expected_start(said)) and start - datetime.now(UTC) >= LATEST_START:
            said = "it starts when the jobs before it end, which have no time limit"
        said += "".join(
            f"\nSlurm does not know job {job}: this job would not wait for it" for job in _unknown(request, environ)
        )
    if problems:
        kind = next((UsageError for error in problems if isinstance(error, UsageError)), ClusterError)
        raise kind("\n".join(map(str, problems)))
    return handover.script, said


def _unknown(request: Request, environ: Mapping[str, str]) -> list[str]:
    """Return the jobs that this one depends on and that Slurm does not know, or not any more."""
    jobs = re.findall(r"(?<![+\w])\d+", request.resolved.spec.dependency or "")
    return [job for job in jobs if not queries.show(job, environ)]


@contextmanager
def _noted(problems: list[SlurmddpError]) -> Iterator[None]:
    try:
        yield
    except SlurmddpError as error:
        problems.append(error)


def _unfailing(notice: Notice) -> Notice:
    """Return a notice that goes on when the terminal is closed: the submission must not end with it."""

    def write(line: str) -> None:
        with suppress(OSError):
            notice(line)

    return write


def _check_request(request: Request, environ: Mapping[str, str]) -> None:
    """Refuse what is wrong by itself. Raises UsageError."""
    spec = request.resolved.spec
    if spec.launcher == "manual":
        raise UsageError(
            "--launcher manual is not for the queue; type `slurmddp render --launcher manual ...` and what it prints"
        )
    check_variables(spec, environ)
    for program in request.programs:
        check_program(program)


def _check_run(request: Request, run: RunDir, *, change: bool) -> None:
    """Refuse a run that another program, or another kind of job, was started in. Raises UsageError."""
    check_kind(request, run)
    if not change and not request.resolved.spec.reset:
        check_same(run, request.resolved)


def _check_limits(request: Request) -> None:
    """Refuse what no part of the cluster can ever give. Raises ClusterError."""
    if request.cluster and (found := find_problems(request.resolved.spec, request.cluster)):
        hint = () if names_no_partition(request.resolved.spec, request.cluster) else (_FORCE_HINT,)
        raise ClusterError("; ".join((*found, *hint)))


def _describe(request: Request, environ: Mapping[str, str], notice: Notice) -> Handover:
    """Return everything that goes to sbatch and into the run's folder."""
    spec = request.resolved.spec
    code, environment = read_code(spec), read_environment(spec)
    return Handover(
        run=RunDir.named(spec.runs_dir, spec.job_name),
        script=build_script(spec, code, request.array, environment),
        spec=_spec_toml(request.resolved),
        code=code,
        array=request.array,
        environment=environment,
        environ=environ,
        notice=notice,
    )


def _pack(environment: Environment, request: Request, notice: Notice) -> None:
    """Pack the environment that the job stages, and say so, since it takes a while. Raises UsageError."""
    begin = time.monotonic()
    if archive := pack_environment(environment, request.resolved.spec.runs_dir):
        size = f"{archive.stat().st_size / 2**20:.0f} MB"
        notice(f"packed {environment.prefix} for --stage-env in {time.monotonic() - begin:.0f} s: {archive}, {size}")


def _spec_toml(resolved: Resolved) -> bytes:
    """Return the text of spec.toml."""
    table = resolve.build_record(resolved, directory=str(Path.cwd()), version=__version__)
    try:
        return tomli_w.dumps(table).encode()
    except UnicodeEncodeError as error:
        given = ascii(error.object[error.start : error.end])
        raise UsageError(f"a value holds bytes that are no UTF-8 text ({given}); only COMMAND may") from error


def _ask_slurm(request: Request, text: bytes, environ: Mapping[str, str], notice: Notice) -> datetime | None:
    """Return when Slurm expects the job to start; None when it does not say. Raises ClusterError when it refuses."""
    try:
        start = sbatch_command.expected_start(_test(request, text, environ))
    except LostAnswerError:
        start = None
    except RefusedError as error:
        if not (request.cluster and waits_for_nodes(request.resolved.spec, request.cluster)):
            hint = "" if _NO_NODE in str(error) else f"; {_FORCE_HINT}"
            raise ClusterError(f"{error}{hint}") from error
        notice(f"the job waits for nodes that are down or drained now ({error})")
        return None
    _check_node_is_known(request)
    return start


def _test(request: Request, text: bytes, environ: Mapping[str, str]) -> str:
    """Return what sbatch says to the script. Raises RefusedError or UsageError with the options that it is about."""
    try:
        return sbatch_command.test_only(text, environ)
    except RefusedError as error:
        names = next((names for words, names in _REFUSED.items() if words in str(error).lower()), ())
        shapes = [nodes.names for one in (request.cluster.partitions if request.cluster else ()) for nodes in one.nodes]
        there = f"; the nodes are {','.join(dict.fromkeys(shapes))}" if shapes and _NO_NODE in str(error) else ""
        if _TOO_LONG in str(error) and len(text) > _LARGE_SCRIPT_B:
            raise UsageError(
                f"the script has {len(text) / 10**6:.1f} MB, more than Slurm takes; put the lines into a file that "
                "--setup sources"
            ) from error
        given = [f"--{name} {value}" for name in names if (value := getattr(request.resolved.spec, name))]
        kind = RefusedError if _BY_CONTROLLER in str(error) else UsageError
        raise kind((f"{error} ({', '.join(given)})" if given else str(error)) + there) from error


def _check_node_is_known(request: Request) -> None:
    """Refuse a job whose ranks and GPUs depend on a cluster that did not answer. Raises ClusterError."""
    spec = request.resolved.spec
    if request.silence and not (spec.gpus_per_node or spec.ntasks_per_node):
        raise ClusterError(
            f"what a node has is not known ({request.silence}); give --gpus-per-node or --ntasks-per-node"
        )


@dataclass
class Folder:
    """What a submission has made in the run's folder, and whether a job in the queue needs it."""

    code_copy: Path | None = None
    is_needed: bool = False


@contextmanager
def made_folder(run: RunDir) -> Iterator[Folder]:
    """Make the run's folder; when the job is refused, remove again what was made.

    After a lost answer everything stays, because the job may be in the queue. The copy of the code is removed only
    when the cluster refuses the job: after another error it is of use to the next submission.
    """
    folder, created = Folder(), run.create()
    try:
        yield folder
    except LostAnswerError:
        raise
    except BaseException as error:
        if not folder.is_needed:
            if folder.code_copy and isinstance(error, ClusterError):
                snapshot.remove_copy(folder.code_copy)
            if created:
                run.remove_unused(created)
        raise


@contextmanager
def _held_signals() -> Iterator[None]:
    """Hold back Ctrl-C and the other signals that would end this process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _remove_copied_owner(run: RunDir) -> None:
    """Remove the owner file of a copied run if it names a job of the original: no job of the copy could start."""
    with suppress(OSError, IndexError):
        holder = run.owner.read_text().split()[1]
        if any(record["job"] == holder and read_origin(run, record).elsewhere for record in submissions(run)):
            run.owner.unlink()


def _submit_chain(first: Submitted, count: int, handover: Handover) -> Submitted:
    """Submit the jobs that follow; when one is refused, those before it stay."""
    chain, broken, last = [], "", first
    for _ in range(count):
        if last.unrecorded:  # a lost answer of the next job could not be told from this one: they share the script
            break
        try:
            last = handover.submit(after=last.job_id.number)
        except ClusterError as error:
            broken = str(error)
            break
        chain.append(last.job_id)
    return replace(first, chain=tuple(chain), unrecorded=last.unrecorded, broken=broken)


def _cancel_replaced(jobs: Sequence[JobInfo], environ: Mapping[str, str], notice: Notice) -> None:
    """Cancel jobs that could never start. The new job is queued: no error is raised."""
    for job in jobs:
        why = explain(job.reason).meaning
        try:
            client.order(commands.cancel(job.job_id), environ)
        except ClusterError as error:
            notice(f"job {job.job_id} can never start ({why}), and was not cancelled: {error}")
        else:
            notice(f"job {job.job_id}, which could never start ({why}), is cancelled")


def _report_run_state(request: Request, run: RunDir, code: Code | None, notice: Notice) -> None:
    """Say where the run goes on, and when it does so with other code than its last job."""
    for last in submissions(run)[-1:]:
        if code and last.get("code") not in (None, code.digest):
            said = f"run {run.path.name} continues with the code as it is now, {code.digest}"
            notice(f"{said}; job {last['job']} has {last['code']}")
    if request.resolved.spec.reset or request.array:
        return
    if state := find_state(run):
        finished = "had finished; it " if is_finished(run) else ""
        notice(f"run {run.path.name} {finished}continues from {state}; --reset starts it over")
    elif is_finished(run):
        notice(f"run {run.path.name} is finished and has no checkpoint: COMMAND runs again from its beginning")


def _report_start(request: Request, start: datetime | None, notice: Notice) -> None:
    """Say when Slurm expects the job to start."""
    spec, now = request.resolved.spec, datetime.now(UTC)
    if start and start - now < LATEST_START and not spec.hold and not spec.dependency:
        notice(f"Slurm expects it to start {'at once' if start - now < _AT_ONCE else f'at {start:%Y-%m-%d %H:%M}'}")


def _report_changes(request: Request, job_id: JobId, environ: Mapping[str, str], notice: Notice) -> None:
    """Say what the site has changed, and why the job may wait for ever. The job is queued: no error is raised."""
    spec = request.resolved.spec
    with suppress(ClusterError):
        for job in queries.show(job_id.number, environ)[:1]:
            for line in site_changes(spec, job):
                notice(line)
            why = warning(job.reason, job.job_id) if job.state == "PENDING" and not spec.hold else ""
            if why:
                notice(f"job {job.job_id} waits ({job.reason}): {why}")


def site_changes(spec: JobSpec, job: JobInfo) -> Iterator[str]:
    """Yield a line for each important value that Slurm has accepted otherwise than it was asked for."""
    if spec.requeue and not job.requeue:
        yield (
            f"job {job.job_id} was accepted with Requeue=0: after a preemption or the time limit it does not start "
            "again; `--chain N` queues N jobs that continue in its place"
        )
    if spec.dependency and not job.dependency:
        known = f"Slurm does not know those of {spec.dependency}, or they have ended"
        yield f"job {job.job_id} waits for no other job: {known}"
    asked_s, limit_s = spec.time_s, job.limit_s
    limit = "UNLIMITED" if limit_s is None else slurm_time(limit_s)
    partitions = spec.partition or ""  # before the job starts, Slurm shows all of them
    pairs = (
        ("partition", spec.partition, job.partition, job.partition not in (partitions, *partitions.split(","))),
        ("time limit", spec.time, limit, asked_s != limit_s and -(-(asked_s or 0) // 60) * 60 != limit_s),
        ("number of nodes", spec.nodes, job.node_count, spec.nodes != job.node_count),
    )
    for what, asked, given, differs in pairs:
        if asked and given and differs:
            yield f"job {job.job_id} was accepted with the {what} {given} where {asked} was asked for"
