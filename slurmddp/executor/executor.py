"""Submits Python callables, as submitit does, by the batch script of every other job."""

import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import submitit
from submitit.core import logger, plugins, utils
from submitit.slurm import slurm as theirs

from slurmddp.config.job_spec import JobSpec
from slurmddp.config.options import unknown
from slurmddp.errors import ClusterError, UsageError
from slurmddp.executor import parameters
from slurmddp.executor.call_files import VARIABLE as HANDED
from slurmddp.executor.call_files import call_file
from slurmddp.executor.job import Job
from slurmddp.script.render import render_callables
from slurmddp.slurm import client
from slurmddp.slurm.client import LostAnswerError
from slurmddp.submission.sbatch import sbatch
from slurmddp.text import shown

_CONSTRUCTOR = ("max_num_timeout", "max_pickle_size_gb", "python")
_USUAL_MAX_ARRAY: Final = 1001
"""Slurm's default of MaxArraySize."""


class Executor(theirs.SlurmExecutor):
    """submitit's executor on Slurm, whose jobs come back, are told of their end, and meet as ranks of torch.

    `folder` holds pickles, results and logs, and must be shared by the nodes; beside it, `<folder>.runs` has what the
    batch script knows of each job. `max_num_timeout` is how often a call with `checkpoint` goes on after its time
    limit; `max_restarts` how often in a row the ranks are started again in the same allocation after a failure that
    this can cure, such as a lost peer; an exception in the callable is none. `python` is shell code that starts Python.
    submitit's own executor is returned for `cluster="local"` and `"debug"`.
    """

    job_class = Job
    cluster = "slurm"

    def __new__(cls, folder: str | Path = "", cluster: str | None = None, **settings: Any) -> Any:  # noqa: D102
        if cluster in (None, "slurm"):
            return super().__new__(cls)
        return submitit.AutoExecutor(folder, cluster=cluster, **settings)

    def __init__(
        self, folder: str | Path, cluster: str | None = None, *, max_restarts: int = 3, **settings: Any
    ) -> None:
        """Raise UsageError for a setting that submitit has not, and for a folder that no job can use."""
        del cluster
        super().__init__(folder, **_settings(settings))
        if "%t" in str(self.folder) or not str(self.folder).isprintable() or "\\" in str(self.folder):
            raise UsageError(
                f"the executor's folder {shown(str(self.folder))} has a %t, a backslash or worse in its name"
            )
        self._python = None if "python" not in settings and "slurm_python" not in settings else self.python
        self._max_restarts = max_restarts
        self._submitted: list[str] = []

    @classmethod
    def affinity(cls) -> int:
        """Rank above submitit's other executors, also where there is no Slurm: the script can be read there."""
        return 2

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(parameters.SLURMS)

    def _internal_update_parameters(self, **given: Any) -> None:
        """Take submitit's names, with and without `slurm_`; raise UsageError for others, and for impossible values."""
        update = self.parameters | parameters.known(given, plugins.get_executors().keys() - {"slurm"})
        self._script(update, None)
        self.parameters.update(update)

    def render(self, count: int | None = None) -> str:
        """Return the script that `submit` would hand to sbatch; with `count`, that of an array of so many calls."""
        return self._script(self.parameters, count)

    def _script(self, asked: Mapping[str, Any], count: int | None) -> str:
        callables = parameters.callables_of(asked, folder=str(self.folder), python=self._python, count=count)
        return render_callables(self._spec(asked), callables)

    def _spec(self, asked: Mapping[str, Any]) -> JobSpec:
        return parameters.spec_of(asked, python=self._python, max_restarts=self._max_restarts)

    def _internal_process_submissions(self, delayed_submissions: Sequence[utils.DelayedSubmission]) -> list[Any]:
        """Submit one job, or one array; more calls than an array may have make several.

        Raises ClusterError when Slurm refuses, and says what is queued; nothing is left of what was not submitted.
        """
        if len(delayed_submissions) == 1:
            return self._submit(delayed_submissions, None)
        jobs: list[Any] = []
        size = _array_size()
        for start in range(0, len(delayed_submissions), size):
            part = delayed_submissions[start : start + size]
            try:
                jobs += self._submit(part, len(part))
            except ClusterError as error:
                queued = (
                    f"; the first {start} calls are queued, as {self._submitted[-start // size :]}" if start else ""
                )
                raise type(error)(f"{error}{queued}") from error
        return jobs

    def _submit(self, calls: Sequence[utils.DelayedSubmission], count: int | None) -> list[Any]:
        """Submit a job, or an array; one that nobody hands its call takes it by its first name."""
        script, handed = self.render(count), self._place / uuid.uuid4().hex
        pickles = self._pickled(calls, handed)
        try:
            number = self._sbatch(script.encode(), "%A_%a" if count else "%j", handed)
        except ClusterError as error:
            if not isinstance(error, LostAnswerError):
                _remove(pickles)
            raise
        self._submitted.append(number)
        jobs = [self._job(f"{number}_{index}" if count else number) for index in range(len(calls))]
        jobs[0].paths.submission_file.parent.mkdir(parents=True, exist_ok=True)
        jobs[0].paths.submission_file.write_text(script)
        for job, pickle in zip(jobs, pickles, strict=True):
            with suppress(FileNotFoundError):  # the job has taken it
                self._hand_over(job, pickle)
        return jobs

    def _hand_over(self, job: Job, pickle: Path) -> None:
        """Give a job its call. Raises FileNotFoundError when it has it already."""
        pickle.stat()
        self._forget_results(job)
        job.paths.move_temporary_file(pickle, "submitted_pickle")

    def _forget_results(self, job: Job) -> None:
        """Remove those of a job that had the same number in an earlier life of the cluster."""
        for rank in range(job.num_tasks):
            utils.JobPaths(self.folder, job.job_id, rank).result_pickle.unlink(missing_ok=True)

    def _job(self, job_id: str) -> Job:
        return Job(folder=self.folder, job_id=job_id, tasks=list(range(self._spec(self.parameters).world_size)))

    def _pickled(self, calls: Sequence[utils.DelayedSubmission], handed: Path) -> list[Path]:
        """Pickle the calls into files of their own; none is left when one of them cannot be."""
        limit_s = self._spec(self.parameters).time_s
        paths = [call_file(handed, index) for index in range(len(calls))]
        try:
            for call, path in zip(calls, paths, strict=True):
                call.set_timeout((limit_s or 0) // 60, self.max_num_timeout)
                call.dump(path)
                self._check_size(paths[0], len(calls))
        except BaseException:
            _remove(paths)
            raise
        return paths

    @property
    def _place(self) -> Path:
        """The folder that no job's number is part of, made if it is missing."""
        place = utils.JobPaths.get_first_id_independent_folder(self.folder)
        place.mkdir(parents=True, exist_ok=True)
        if place == self.folder:
            _make_runs(place.with_name(f"{place.name}.runs"))
        return place

    def _check_size(self, path: Path, count: int) -> None:
        size_gb = path.stat().st_size / 1024**3
        if count * size_gb > self.max_pickle_size_gb:
            raise UsageError(
                f"{count} call(s) of {size_gb:.2g} GB pickled are more than max_pickle_size_gb="
                f"{self.max_pickle_size_gb:g}; give paths in place of large objects, or a larger limit"
            )

    def _sbatch(self, script: bytes, number: str, handed: Path) -> str:
        place, stream = self._place, "out" if self.parameters.get("stderr_to_stdout") else "err"
        return sbatch(
            script,
            name=self._spec(self.parameters).job_name,
            output=place / (f"{number}_0_log.{stream}" if place == self.folder else f"slurm-{number}.out"),
            known=self._known,
            environ={**os.environ, HANDED: str(handed)},
            notice=logger.get_logger().warning,
        ).number

    def _known(self) -> list[str]:
        """Return the jobs that are there already: this executor's, and those that another has in the same folder."""
        others = (path.name.partition("_")[0] for path in self._place.rglob("*_submission.sh"))
        return list({*self._submitted, *others})


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's own; submitit also has them with `slurm_`, and those of other clusters beside them."""
    others = plugins.get_executors().keys() - {"slurm"}
    settings = {
        key.removeprefix("slurm_"): value for key, value in given.items() if key.partition("_")[0] not in others
    }
    for key in settings:
        if key not in _CONSTRUCTOR:
            raise unknown(key, (*_CONSTRUCTOR, "max_restarts"), "Executor", what="setting")
    return settings


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _make_runs(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}, beside the executor's folder, cannot be made: {error.strerror}") from error


def _array_size() -> int:
    """Return how many calls an array may have here."""
    match = re.search(r"MaxArraySize\s*=\s*([1-9]\d*)", client.query(["scontrol", "show", "config"], os.environ))
    return int(match[1]) if match else _USUAL_MAX_ARRAY
