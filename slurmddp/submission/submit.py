"""Submits a job: checks it, hands its script to sbatch, records it in the run's folder. A refusal leaves no files."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import tomli_w

from slurmddp import variables
from slurmddp.cluster.limits import refuse_impossible
from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import hold_submission
from slurmddp.runs.submissions import read_origin, submissions
from slurmddp.script import snapshot
from slurmddp.script.build import Script, build_script, check_environment, check_variables
from slurmddp.slurm.client import LostAnswerError
from slurmddp.submission.compatibility import check_idle, check_kind, check_same
from slurmddp.submission.notices import ask_start, explain_answer, report_changes, report_run_state
from slurmddp.submission.prepare_data import prepare
from slurmddp.submission.submit_once import Handover, Notice, Submitted, remove_leftovers
from slurmddp.version import __version__

Check = Callable[[], object]
"""Raises what is wrong."""
_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def submit(
    request: Request,
    *,
    change: bool,
    environ: Mapping[str, str],
    notice: Notice,
    chain: int = 0,
    force: bool = False,
    held: AbstractContextManager[float | None] | None = None,
    accepted: Callable[[Submitted], None] = lambda _: None,
) -> Submitted:
    """Submit a job and record it; `change` allows a run to go on with another command.

    `chain` more jobs of the same script follow; each starts when the one before it has ended, whatever its end.
    `force` submits a job that seems never to start. `notice` gets what sbatch says beside the id, the expected start,
    and what the site has changed. `accepted` gets the jobs as soon as they are queued; a signal that would end this
    process is held back until then, so that no job is lost. A caller that holds the run by `hold_submission` itself
    gives what that yields as `held`. Raises UsageError when the request is wrong by itself or the run is another's,
    ClusterError when the cluster rules it out or Slurm refuses.

    The order matters: describe, check, act, report. A value that the cluster refuses is told before a question about
    the run. Until the run's folder is made, nothing is written.
    """

    def tell(line: str) -> None:
        with suppress(OSError):  # stderr may be closed: the submission must go on
            notice(line)

    handover = _describe(request, environ, tell)
    run, script = handover.run, handover.script
    for line in script.notices:
        tell(line)
    starts: list[datetime | None] = []
    ask = (lambda: None) if force else (lambda: starts.append(ask_start(request, script.text, environ, tell)))
    for check in _checks(request, run, environ, ask, change=change, force=force):
        check()
    for program in request.programs:
        prepare(program)

    with made_folder(run) as folder, held or hold_submission(run) as killed:
        remove_leftovers(run)
        check_idle(request, run, environ)
        _remove_copied_owner(run)
        report_run_state(request, run, script.code, tell)
        if script.code:
            folder.code_copy = snapshot.copy_code(script.code, run)
        with _held_signals():
            first = handover.submit(killed=killed)
            folder.is_needed = True
            done = _submit_chain(first, chain, handover)
            accepted(done)

    report_changes(request.resolved.spec, first.job_id, next(iter(starts), None), environ, tell)
    return done


def dry_run(
    request: Request, *, change: bool, environ: Mapping[str, str], force: bool = False, found: Sequence[UsageError] = ()
) -> tuple[Script, str]:
    """Return the script, and what sbatch says to it; write nothing.

    Raises what `submit` would, with a line for each problem and not only for the first, those in `found` last.
    """
    problems: list[SlurmddpError] = []
    said: list[str] = []
    handover = _describe(request, environ, lambda _: None)
    run, script = handover.run, handover.script
    answer = partial(explain_answer, request, script.text, environ)
    checks: list[Check] = [lambda: check_idle(request, run, environ)]
    checks[:0] = _checks(request, run, environ, lambda: said.extend(answer()), change=change, force=force)
    for check in checks:
        try:
            check()
        except SlurmddpError as error:
            problems.append(error)
    if problems := [*problems, *found]:
        kind = next((UsageError for error in problems if isinstance(error, UsageError)), ClusterError)
        raise kind("\n".join(map(str, problems)))
    return script, "\n".join(said)


def _checks(
    request: Request, run: RunDir, environ: Mapping[str, str], ask: Check, *, change: bool, force: bool
) -> Iterator[Check]:
    """Yield the checks of the request, this machine, the cluster (`ask` is of sbatch) and the run, in this order."""
    spec = request.resolved.spec
    if spec.launcher == "manual":
        raise UsageError(
            "--launcher manual is not for the queue; type `slurmddp render --launcher manual ...` and what it prints"
        )
    yield lambda: check_variables(spec, environ)
    if not force:
        yield lambda: check_environment(spec)
        if cluster := request.cluster:
            yield lambda: refuse_impossible(spec, cluster, request.resolved.origins, force="--force")
    yield ask
    yield lambda: check_kind(request, run)
    if not change and not spec.reset:
        yield lambda: check_same(run, request.resolved)


def _describe(request: Request, environ: Mapping[str, str], notice: Notice) -> Handover:
    """Return everything that goes to sbatch and into the run's folder."""
    spec = request.resolved.spec
    script = build_script(spec, request.array)
    table = resolve.build_record(request.resolved, directory=str(Path.cwd()), version=__version__)
    try:
        record = tomli_w.dumps(table).encode()
    except UnicodeEncodeError as error:
        given = ascii(error.object[error.start : error.end])
        raise UsageError(f"a value holds bytes that are no UTF-8 text ({given}); only COMMAND may") from error
    return Handover(
        run=RunDir.named(spec.runs_dir, spec.job_name),
        request=request,
        script=script,
        spec=record,
        environ={**environ, variables.NOTIFY_TARGET: spec.notify} if spec.notify else environ,
        notice=notice,
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
    except BaseException as error:
        if not (folder.is_needed or isinstance(error, LostAnswerError)):
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
    done = first
    for _ in range(count):
        if done.unrecorded:  # a lost answer of the next job could not be told from this one: they share the script
            break
        last = done.chain[-1] if done.chain else done.job_id
        try:
            following = handover.submit(after=last.number)
        except ClusterError as error:
            return done._replace(broken=str(error))
        done = done._replace(chain=(*done.chain, following.job_id), unrecorded=following.unrecorded)
    return done
