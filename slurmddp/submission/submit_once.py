"""Submits a script exactly once, also when sbatch's answer is lost, and records the job in the run's folder."""

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurmddp.cluster.request import Request
from slurmddp.errors import UsageError
from slurmddp.runs import registry
from slurmddp.runs.files import append_record, durable_file, write_whole
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import folder_identity, submissions
from slurmddp.script import git
from slurmddp.script.build import Script
from slurmddp.slurm import queries, sbatch_command
from slurmddp.slurm.client import LostAnswerError
from slurmddp.slurm.job_info import JobId
from slurmddp.version import __version__

ATTEMPTS: Final = 3
"""How often sbatch is tried when its answer is lost and the job is nowhere to be found."""

FIND_PAUSES_S: Final = (0.0, 2.0, 8.0)
"""Seconds before each search for a job whose answer was lost; a busy controller accepts late."""

SETTLED_S: Final = 60.0
"""A log that was written within this time before the submission may belong to a running job."""

_TEMPORARY: Final = re.compile(r"\.(job\.sbatch|\d+\.sbatch|spec\.toml|\.gitignore|\.submitting\.next)\.[a-z0-9_]{8}")
"""The temporary files in which a submission writes the files of a run (`write_whole`, `create_exclusively`)."""

Notice = Callable[[str], None]


def set_aside(log: Path, before: float) -> None:
    """Rename the batch log of an older job of the same number, last written before the time `before` since 1970.

    A cluster that was set up again starts its job numbers again. Raises OSError, also when there is no such file.
    """
    info = log.stat()
    if info.st_size and info.st_mtime < before:
        log.rename(f"{log}.before-{info.st_mtime_ns}")


def remove_leftovers(run: RunDir) -> None:
    """Remove what submissions left that were killed while they wrote; call it with the run claimed.

    That is a temporary file of the run, or a copy of the code that is not complete.
    """
    with suppress(OSError):
        for path in run.path.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()
    for path in run.codes.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


class Submitted(NamedTuple):
    """A job in the queue."""

    job_id: JobId
    run: RunDir
    unrecorded: str = ""
    """Why the run's folder does not know the job; empty when it does."""
    chain: tuple[JobId, ...] = ()
    """The jobs that continue, each when the one before it has ended."""
    broken: str = ""
    """Why the chain is shorter than asked for; empty when it is not."""


@contextmanager
def _file_beside(own: Sequence[str], text: bytes) -> Iterator[tuple[str, ...]]:
    """Yield a file with this text in the folder of the user's own script, and the arguments; remove it at the end.

    A job finds the folder of its script by `scontrol show job`. Without `own` nothing is yielded: sbatch reads its
    standard input. Raises UsageError where that folder cannot be written.
    """
    if not own:
        yield ()
        return
    path = Path.cwd() / own[0]
    with ExitStack() as stack:
        try:
            temporary = stack.enter_context(durable_file(path, text))
        except OSError as error:
            raise UsageError(
                f"{path.parent} cannot be written ({error.strerror}), and sbatch must find the script there; copy it "
                "to a folder of yours"
            ) from error
        yield str(temporary), *own[1:]


def sbatch(
    script: bytes,
    command: Sequence[str],
    *,
    name: str,
    known: Callable[[], Sequence[str]],
    environ: Mapping[str, str],
    notice: Notice,
    own: Sequence[str] = (),
    killed: float | None = None,
) -> JobId:
    """Submit once, also when the answer is lost: the job is looked for before sbatch is tried again.

    `name` is the job's name; the jobs in `known` are older ones. `own` is a script of the user's own, and its
    arguments. `killed` is when a submission began that was killed: a job that it has left in the queue is taken. Raises
    ClusterError when sbatch refuses, LostAnswerError when neither sbatch nor the controller says whether the job was
    accepted.
    """
    find, since = partial(queries.find_job, name=name, script=script, environ=environ), datetime.now(UTC)
    if killed and (left := find(since=datetime.fromtimestamp(killed, UTC), known=known(), ended=False)):
        notice(f"job {left.number} is in the queue already, from a submission that was killed")
        return left
    for _ in range(ATTEMPTS):
        try:
            with _file_beside(own, script) as file:
                job_id, said = sbatch_command.submit([*command, *file], b"" if file else script, environ)
        except LostAnswerError as error:
            lost = error
        else:
            if said:
                notice(said)
            return job_id
        notice(f"sbatch's answer was lost ({lost}); looking for the job")
        if found := _find_accepted_job(partial(find, since=since, known=known()), name):
            return found
    raise LostAnswerError(
        f"sbatch's answer was lost {ATTEMPTS} times ({lost}) and no job {name} is to be found; look with "
        f"`squeue --name={name}` before you submit again"
    ) from lost


def _find_accepted_job(find: Callable[[], JobId | None], name: str) -> JobId | None:
    """Return the job that `find` finds if it was accepted, None if the controller says that it was not.

    Raises LostAnswerError when the controller does not say: it may yet take the job, and a second one with it.
    """
    for pause_s in FIND_PAUSES_S:
        time.sleep(pause_s)
        try:
            found, silent = find(), None
        except LostAnswerError as error:
            found, silent = None, error
        if found:
            return found
    if silent:
        raise LostAnswerError(
            f"sbatch's answer was lost, and the controller does not say whether it has the job ({silent}); look "
            f"with `squeue --name={name}` before you submit again"
        ) from silent
    return None


class Handover(NamedTuple):
    """What goes to sbatch, and what is written down when it was accepted."""

    run: RunDir
    request: Request
    script: Script
    spec: bytes
    """The text of spec.toml."""
    environ: Mapping[str, str]
    notice: Notice

    def submit(self, after: str = "", killed: float | None = None) -> Submitted:
        """Submit the script and record it; `after` is the job whose end it waits for.

        If a submission that began at the time `killed` has left a job of the same script in the queue, without a
        record, that job is taken. Raises ClusterError when sbatch refuses, LostAnswerError when it is not known whether
        the job was accepted.
        """
        # read first: once the job is queued, nothing may fail
        began, (commit, dirty) = time.time(), git.read_commit(Path.cwd())
        code = self.script.code.digest if self.script.code else None
        origin = {**folder_identity(self.run), "commit": commit, "dirty": dirty, "code": code}
        known = [record["job"] for record in submissions(self.run)]
        spec = self.request.resolved.spec
        for folder in spec.script.missing_folders(spec.slurm_name) if spec.script else ():
            self._make_output_folder(folder)
        command = sbatch_command.sbatch_command(
            # a script of the user's own says where its output goes
            output=None if spec.script else self.run.batch_log("%A_%a" if self.request.array else "%j"),
            dependency=f"afterany:{after}" if after else "",
            name=spec.slurm_name if spec.script else "",
        )
        job_id = sbatch(
            self.script.text,
            command,
            name=spec.slurm_name,
            own=(spec.script.path, *spec.command[1:]) if spec.script else (),
            known=lambda: known,
            environ=self.environ,
            notice=self.notice,
            killed=killed,
        )
        with suppress(OSError):
            set_aside(self.run.batch_log(job_id.number), began - SETTLED_S)
        return Submitted(job_id, self.run, unrecorded=self._record(job_id, after, origin))

    def _make_output_folder(self, folder: Path) -> None:
        """Make a folder in which a script of the user's own wants its output."""
        with suppress(OSError):
            if "%" not in str(folder):
                folder.mkdir(parents=True)
        if not folder.exists():
            self.notice(f"the folder of the output, {folder}, is not there; make it, or the job fails at its start")

    def _record(self, job_id: JobId, after: str, origin: dict[str, Any]) -> str:
        """Record the submission, in its last file; return why that failed, empty when it did not."""
        spec, array = self.request.resolved.spec, self.request.array
        tasks = spec.script.tasks if spec.script else ()
        submission = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "job": job_id.number,
            "name": spec.slurm_name,
            "cluster": job_id.cluster or (self.request.cluster.name if self.request.cluster else ""),
            "after": after or None,
            "sha256": hashlib.sha256(self.script.text).hexdigest(),
            **origin,
            "version": __version__,
            **({"settings": [dict(task.values) for task in array.tasks]} if array else {}),
            **({"settings": [{"task": str(task)} for task in tasks], "indices": tasks} if tasks else {}),
        }
        try:
            write_whole(self.run.submitted_script(job_id.number), self.script.text)
            write_whole(self.run.job_script, self.script.text)
            write_whole(self.run.spec, self.spec)
            registry.remember(self.run.path.parent)
            append_record(self.run.submissions, submission)
        except OSError as error:
            return f"{error.filename or self.run.path}: {error.strerror}"
        return ""
