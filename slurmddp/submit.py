"""Job -> script -> sbatch -> id, and the record of it in the run's folder. Nothing is left behind by a refusal."""

import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import tomli_w

from slurmddp import __version__, codecopy, config, provenance, slurm
from slurmddp.cluster.limits import problems
from slurmddp.codecopy import Code, code_of
from slurmddp.command import script_of
from slurmddp.config import Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.fields import shown
from slurmddp.masking import masked_words
from slurmddp.outcome import DONE
from slurmddp.prepare import prepare
from slurmddp.request import Request
from slurmddp.rundir import RunDir, append_record, last_records, read_records, write_whole
from slurmddp.script import script
from slurmddp.spec import JobSpec, seconds

ATTEMPTS: Final = 3
"""How often sbatch is tried when its answer is lost and the job is nowhere to be found."""

LOOKS: Final = (0.0, 2.0, 8.0)
"""Seconds to wait before each look for a job whose answer was lost; a busy controller accepts late."""

_REMEMBERED: Final = 20
_ALL_THE_SAME: Final = "--force submits it all the same"
_AT_ONCE: Final = timedelta(minutes=2)
_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Notice = Callable[[str], None]
Record = dict[str, Any]


@dataclass(frozen=True)
class Submitted:
    """A job in the queue."""

    job_id: slurm.JobId
    run: RunDir
    unrecorded: str = ""
    """Why the run's folder does not know the job; empty when it does."""
    chain: tuple[slurm.JobId, ...] = ()
    """The jobs that take over, each when the one before it has ended."""
    broken: str = ""
    """Why the chain is shorter than it was to be; empty when it is not."""


def submit(
    request: Request,
    *,
    change: bool,
    environ: Mapping[str, str],
    notice: Notice,
    chain: int = 0,
    force: bool = False,
) -> Submitted:
    """Submit a job and record it; `change` allows a run to go on with another command.

    `chain` more jobs of the same script follow, each when the one before it has ended, however that was. `force`
    submits what seems never to start. `notice` gets what sbatch says beside the id, when Slurm expects the job to
    start, and what the site has changed. Raises UsageError when the request is wrong by itself or the run is
    another's, ClusterError when the cluster rules it out or Slurm refuses.
    """
    resolved = request.resolved
    _check_can_queue(resolved.spec)
    code = code_of(resolved.spec)
    text, run, record = script(resolved.spec, code), _run_of(resolved.spec), _described(resolved)
    _check(resolved, run, change=change, environ=environ)
    if not force:
        _check_limits(request)
    prepare(resolved.spec)
    if not force:
        _ask_slurm(resolved.spec, text, environ, notice)
    copy: Path | None = None
    created = run.create()
    try:
        with run.claimed():
            _check_idle(resolved.spec, run, environ)
            if code:
                _tell_code(code, run, notice)
                copy = codecopy.keep(code, run)
            if _is_finished(run) and not resolved.spec.reset:
                notice(f"run {run.path.name} is finished: the job will only run its end again; --reset starts over")
            digest = code.digest if code else None
            first = _submit_one(text, resolved.spec, run, environ, notice, record, digest)
            _tell_changes(resolved.spec, first.job_id, environ, notice)
            return _chained(
                first,
                chain,
                lambda after: _submit_one(text, resolved.spec, run, environ, notice, record, digest, after),
            )
    except slurm.LostAnswerError:
        raise
    except BaseException as error:
        if copy and isinstance(error, ClusterError):  # after any other error the job may be in the queue
            codecopy.discard(copy)
        if created:
            run.remove_unused(created)
        raise


def dry_run(request: Request, *, change: bool, environ: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the script, and what sbatch says to it; raise what `submit` would, and write nothing."""
    resolved = request.resolved
    _check_can_queue(resolved.spec)
    text, run = script(resolved.spec), _run_of(resolved.spec)
    _described(resolved)
    _check(resolved, run, change=change, environ=environ)
    _check_idle(resolved.spec, run, environ)
    _check_limits(request)
    return text, slurm.test_only(text, environ)


def _ask_slurm(spec: JobSpec, text: bytes, environ: Mapping[str, str], notice: Notice) -> None:
    """Refuse what Slurm says that it would, and tell when it expects the job to start."""
    try:
        said = slurm.test_only(text, environ)
    except slurm.LostAnswerError:
        return
    except slurm.RefusedError as error:
        raise ClusterError(f"{error}; {_ALL_THE_SAME}") from error
    start = slurm.expected_start(said)
    if start and not spec.hold and not spec.dependency:
        notice(f"Slurm expects it to start {_when(start)}")


def _check_limits(request: Request) -> None:
    """Refuse what no part of the cluster can ever give."""
    found = problems(request.resolved.spec, request.cluster) if request.cluster else ()
    if found:
        raise ClusterError("; ".join((*found, _ALL_THE_SAME)))


def _when(start: datetime) -> str:
    """Return a time for people; the clocks of two machines differ a little."""
    return "at once" if start - datetime.now(UTC) < _AT_ONCE else f"at {start:%Y-%m-%d %H:%M}"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and the like wait: between sbatch's acceptance and the printed id, a job could be forgotten."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_of(spec: JobSpec) -> RunDir:
    return RunDir.named(spec.runs_dir, spec.job_name)


def _described(resolved: Resolved) -> bytes:
    """Return the text of spec.toml."""
    table = config.recorded(resolved, directory=str(Path.cwd()), version=__version__)
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


def _check(resolved: Resolved, run: RunDir, *, change: bool, environ: Mapping[str, str]) -> None:
    for item in resolved.spec.env:
        if "=" not in item and item not in environ:
            raise UsageError(f"--env {item}: {item} is not set here; export it, or give --env {item}=VALUE")
    if not change and not resolved.spec.reset:
        _check_same(run, resolved)


def _check_idle(spec: JobSpec, run: RunDir, environ: Mapping[str, str]) -> None:
    """Refuse a second job for a run that one is queued or running for, unless it depends on that one."""
    for job in unfinished(run, environ):
        if job.job_id not in (spec.dependency or ""):
            raise UsageError(
                f"run {run.path.name} belongs to job {job.job_id}, which is {job.state}; wait for it, cancel it with "
                f"`scancel {job.job_id}`, or choose another --name"
            )


def _is_finished(run: RunDir) -> bool:
    """Tell by the last event whether the run's last job ended well."""
    return [record.get("status") for record in last_records(run.events)][-1:] == [DONE]


def unfinished(run: RunDir, environ: Mapping[str, str]) -> list[slurm.Job]:
    """Return the run's jobs that are queued or running, told by their script from others of the same number.

    Raises ClusterError when the controller does not answer.
    """
    digests = {record["job"]: record.get("sha256") for record in _submissions(run)[-_REMEMBERED:]}
    known = slurm.jobs(list(digests), environ) if digests else []
    waiting = [job for job in known if not job.ended and job.job_id in digests]
    return [job for job in waiting if slurm.script_digest(job.job_id, environ) == digests[job.job_id]]


def changes(spec: JobSpec, job: slurm.JobRecord) -> Iterator[str]:
    """Yield a line for each thing that matters and that Slurm has accepted otherwise than it was asked for."""
    if spec.requeue and not job.requeue:
        yield (
            f"job {job.job_id} was accepted with Requeue=0: once preempted or told to stop it does not come back by "
            "itself; `--chain N` queues N jobs that go on in its place"
        )
    asked_s, limit_s = spec.time_s, seconds(job.time_limit) if job.time_limit else None
    pairs = (
        ("partition", spec.partition, job.partition, spec.partition != job.partition),
        ("time limit", spec.time, job.time_limit, asked_s != limit_s and -(-(asked_s or 0) // 60) * 60 != limit_s),
        ("number of nodes", spec.nodes, job.nodes, spec.nodes != job.nodes),
    )
    for what, asked, given, differs in pairs:
        if asked and given and differs:
            yield f"job {job.job_id} was accepted with the {what} {given} where {asked} was asked for"


def _tell_changes(spec: JobSpec, job_id: slurm.JobId, environ: Mapping[str, str], notice: Notice) -> None:
    """Look at what became of the request; the job is in the queue, so nothing here may fail."""
    with suppress(ClusterError):
        for job in slurm.show(job_id.number, environ)[:1]:
            for line in changes(spec, job):
                notice(line)


def _tell_code(code: Code, run: RunDir, notice: Notice) -> None:
    """Say so when the run goes on with other code than its last job has."""
    for last in _submissions(run)[-1:]:
        if last.get("code") not in (None, code.digest):
            said = f"run {run.path.name} goes on with the code as it is now, {code.digest}"
            notice(f"{said}; job {last['job']} has {last['code']}")


def _submit_one(
    text: bytes,
    spec: JobSpec,
    run: RunDir,
    environ: Mapping[str, str],
    notice: Notice,
    record: bytes,
    code: str | None,
    after: str = "",
) -> Submitted:
    """Submit the script and record it; `after` is the job whose end it waits for."""
    job_id = _sbatch(text, spec, run, environ, notice, after)
    return Submitted(job_id, run, unrecorded=_record(run, job_id, text, record, code, after))


def _chained(first: Submitted, count: int, follow: Callable[[str], Submitted]) -> Submitted:
    """Submit the jobs that take over; a refusal leaves those that were accepted."""
    chain, broken, last = [], "", first
    for _ in range(count):
        if last.unrecorded:  # it could be taken for the next one, whose script is the same
            break
        try:
            last = follow(last.job_id.number)
        except ClusterError as error:
            broken = str(error)
            break
        chain.append(last.job_id)
    return replace(first, chain=tuple(chain), unrecorded=last.unrecorded, broken=broken)


def _submissions(run: RunDir) -> list[Record]:
    return [record for record in read_records(run.submissions) if str(record.get("job", "")).isdecimal()]


def _check_same(run: RunDir, resolved: Resolved) -> None:
    """Refuse to mix two programs in one run."""
    if not run.spec.exists():
        return
    before = _program(config.read_job_file(run.spec))
    now = _program(config.recorded(resolved, directory=str(Path.cwd()), version=__version__))
    for key in ("command", "worker"):
        if before.get(key) != now.get(key):
            raise UsageError(
                f"run {run.path.name} was made with another {key}: {_difference(before.get(key), now.get(key))}; "
                "choose another --name, or --continue to mean it"
            )


def _program(table: Record) -> Record:
    """Return what a run's program is, its script by its full path: where it was typed does not matter."""
    words = table.get("command", [])
    script_path = script_of(tuple(words[:1])) if words else None
    return table | {"command": [str(Path.cwd() / script_path), *words[1:]]} if script_path else table


def _difference(before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} {shown(before.get(key))} became {shown(now.get(key))}" for key in keys)
    return f"{_shown_command(before)} became {_shown_command(now)}"


def _shown_command(words: Any) -> str:
    """Return a recorded command for a message, without what look like secrets."""
    return shown(list(masked_words(tuple(map(str, words)))) if words else words)


def _sbatch(
    text: bytes, spec: JobSpec, run: RunDir, environ: Mapping[str, str], notice: Notice, after: str
) -> slurm.JobId:
    """Submit once, also when the answer is lost: the job is looked for before sbatch is tried again."""
    since = datetime.now(UTC)
    known = [record["job"] for record in _submissions(run)]
    for _ in range(ATTEMPTS):
        try:
            dependency = f"afterany:{after}" if after else ""
            job_id, said = slurm.submit(text, output=run.batch_log("%j"), environ=environ, dependency=dependency)
        except slurm.LostAnswerError as error:
            lost = error
        else:
            if said:
                notice(said)
            return job_id
        notice(f"sbatch's answer was lost ({lost}); looking for the job")
        found = _look(text, spec, since, known, environ)
        if found:
            return found
    raise slurm.LostAnswerError(
        f"sbatch's answer was lost {ATTEMPTS} times ({lost}) and no job {spec.job_name} is to be found; look with "
        f"`squeue --name={spec.job_name}` before you submit again"
    ) from lost


def _look(
    text: bytes, spec: JobSpec, since: datetime, known: list[str], environ: Mapping[str, str]
) -> slurm.JobId | None:
    """Return the job if it was accepted, None if the controller says that it was not.

    Raises LostAnswerError when the controller does not say: it may yet take the job, and a second one with it.
    """
    for pause_s in LOOKS:
        time.sleep(pause_s)
        silent = None
        try:
            found = slurm.find_job(
                name=spec.job_name, user=slurm.user(), script=text, since=since, known=known, environ=environ
            )
        except slurm.LostAnswerError as error:
            silent = error
            continue
        if found:
            return found
    if silent:
        raise slurm.LostAnswerError(
            f"sbatch's answer was lost, and the controller does not say whether it has the job ({silent}); look with "
            f"`squeue --name={spec.job_name}` before you submit again"
        ) from silent
    return None


def _record(run: RunDir, job_id: slurm.JobId, text: bytes, spec: bytes, code: str | None, after: str) -> str:
    """Write the submission down; return what kept it from being written, empty when nothing did."""
    directory = Path.cwd()
    commit, dirty = provenance.commit(directory)
    submission = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": job_id.number,
        "cluster": job_id.cluster,
        "after": after or None,
        "sha256": hashlib.sha256(text).hexdigest(),
        "directory": str(directory),
        "commit": commit,
        "dirty": dirty,
        "code": code,
        "version": __version__,
    }
    try:
        append_record(run.submissions, submission)
        write_whole(run.submitted_script(job_id.number), text)
        write_whole(run.job_script, text)
        write_whole(run.spec, spec)
    except OSError as error:
        return f"{error.filename or run.path}: {error.strerror}"
    return ""
