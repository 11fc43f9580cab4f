"""Submits Python callables as submitit does, with the batch script of `slurmddp submit`."""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from submitit.auto.auto import AutoExecutor
from submitit.core import logger, plugins, utils
from submitit.slurm import slurm as theirs

from slurmddp.cluster.inspect import query_cluster
from slurmddp.cluster.limits import refuse_impossible
from slurmddp.cluster.partitions import Cluster
from slurmddp.config.option_types import unknown
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.executor import parameters
from slurmddp.executor.job import CALL_VARIABLE, Job, call_file
from slurmddp.runs import registry
from slurmddp.script.build import check_pythons, check_shell
from slurmddp.script.render import render_callables
from slurmddp.slurm import client, commands
from slurmddp.slurm.client import LostAnswerError
from slurmddp.slurm.sbatch_command import sbatch_command
from slurmddp.submission.submit_once import sbatch
from slurmddp.text import quote_value

_CONSTRUCTOR = ("max_num_timeout", "max_pickle_size_gb", "python", "force")


class Executor(theirs.SlurmExecutor):
    """submitit's executor on Slurm, whose jobs are requeued, save at signals, and form the ranks of torch.

    `folder` holds pickles, results and logs; all nodes must share it. `<folder>.runs` next to it has the batch
    script's files of each job. `max_num_timeout` is how often a call with `checkpoint` continues after its time limit.
    `max_restarts` is how often in a row the ranks are started again in the same allocation after a failure that a
    restart can cure, such as a lost peer, but not after an exception in the callable. `python` is shell code that
    starts Python. `force` submits a job that seems never to start. `cluster="local"` and `"debug"` return submitit's
    own executor.
    """

    job_class = Job
    cluster = "slurm"

    def __new__(cls, folder: str | Path = "", cluster: str | None = None, **settings: Any) -> Any:  # noqa: D102
        if cluster in (None, "slurm"):
            return super().__new__(cls)
        return AutoExecutor(folder, cluster=cluster, **settings)

    def __init__(
        self, folder: str | Path, cluster: str | None = None, *, max_restarts: int = 3, **settings: Any
    ) -> None:
        """Raise UsageError for a setting that submitit does not have, and for a folder that no job can use."""
        del cluster
        others = plugins.get_executors().keys() - {"slurm"}
        own = {
            key.removeprefix("slurm_"): value for key, value in settings.items() if key.partition("_")[0] not in others
        }
        if wrong := [key for key in own if key not in _CONSTRUCTOR]:
            raise unknown(wrong[0], (*_CONSTRUCTOR, "max_restarts"), "Executor", what="setting")
        self._force = own.pop("force", False)
        super().__init__(folder, **own)
        if "%t" in str(self.folder) or not str(self.folder).isprintable() or "\\" in str(self.folder):
            raise UsageError(
                f"the executor's folder {quote_value(str(self.folder))} has %t, a backslash or a control character in "
                "its name; choose another folder"
            )
        self._python = self.python if "python" in own else None
        self._spec = partial(parameters.build_spec, python=self._python, max_restarts=max_restarts)
        self._numbers: list[str] = []
        self._shared = utils.JobPaths.get_first_id_independent_folder(self.folder)
        """The part of the folder's path without the number of a job."""
        runs = self._shared.with_name(f"{self._shared.name}.runs")
        self._runs = runs if self._shared == self.folder else self._shared
        """Where Slurm writes the output of each job's batch script."""

    @classmethod
    def affinity(cls) -> int:
        """Rank above submitit's other executors, even without Slurm, so that the script can be rendered there."""
        return 2

    def _internal_update_parameters(self, **given: Any) -> None:
        """Accept submitit's names, with and without `slurm_`; raise UsageError for other names and for wrong values."""
        update = self.parameters | parameters.select_known(given, plugins.get_executors().keys() - {"slurm"})
        with _naming_parameters():
            self._script(update, None)
        self.parameters.update(update)

    def render(self, count: int | None = None) -> str:
        """Return the script that `submit` gives to sbatch; with `count`, that of an array of that many calls."""
        return self._script(self.parameters, count)

    def _script(self, asked: Mapping[str, Any], count: int | None) -> str:
        callables = parameters.build_callables(asked, folder=str(self.folder), python=self._python, count=count)
        return render_callables(self._spec(asked), callables | {"outputs": str(self._runs)})

    def _internal_process_submissions(self, delayed_submissions: Sequence[utils.DelayedSubmission]) -> list[Any]:
        """Submit one job or one array, or several arrays when one cannot hold all calls.

        Raises ClusterError when Slurm refuses, or when no part of the cluster can ever run the job; it names the queued
        jobs. Calls that were not submitted leave no files.
        """
        cluster = Cluster()
        with suppress(ClusterError):  # of one that does not answer nothing is known, and sbatch decides
            cluster = query_cluster(os.environ)
        if not self._force:
            with _naming_parameters():
                self._check(cluster)
        if len(delayed_submissions) == 1:
            return self._submit(delayed_submissions, None)
        jobs, size = list[Any](), cluster.max_array_size
        for start in range(0, len(delayed_submissions), size):
            part = delayed_submissions[start : start + size]
            try:
                jobs += self._submit(part, len(part))
            except ClusterError as error:
                names = self._numbers[-start // size :]
                queued = f"; the first {start} calls are queued, as {names}" if start else ""
                raise type(error)(f"{error}{queued}") from error
        return jobs

    def _check(self, cluster: Cluster) -> None:
        """Raise what `slurmddp submit` would of this job: what would end it on its nodes, or keep it in the queue."""
        spec = self._spec(self.parameters)
        check_shell("slurm_setup: bash cannot parse these lines", "\n".join(spec.setup))
        if "/" in (spec.python or ""):  # else it may be shell code
            check_pythons(spec, "check the path, or give force=True if only the nodes have it")
        words = parameters.split_words("srun_args", self.parameters) + spec.srun_words
        if words and "Usage:" not in client.ask([*commands.CHECK_SRUN, *words, "--help"], os.environ).stdout:
            raise UsageError(f"slurm_srun_args: not all of these are among srun's options: {' '.join(words)}")
        refuse_impossible(spec, cluster, {}, force="Executor(..., force=True)")

    def _submit(self, calls: Sequence[utils.DelayedSubmission], count: int | None) -> list[Any]:
        """Submit a job or an array. If this process ends before it hands the calls over, the jobs take them."""
        self._create_folders()
        script, handover = self.render(count), self._shared / uuid.uuid4().hex
        pickles = [call_file(handover, index) for index in range(len(calls))]
        try:
            self._pickle(calls, pickles)
            number = sbatch(
                script.encode(),
                sbatch_command(output=self._runs / f"slurm-{'%A_%a' if count else '%j'}.out"),
                name=self._spec(self.parameters).job_name,
                known=lambda: self._numbers + [one.name.split("_")[0] for one in self._shared.rglob("*_submission.sh")],
                environ={**os.environ, CALL_VARIABLE: str(handover)},
                notice=logger.get_logger().warning,
            ).number
        except Exception as error:  # after Ctrl-C, the job may be queued
            for path in () if isinstance(error, LostAnswerError) else pickles:
                path.unlink(missing_ok=True)
            raise
        self._numbers.append(number)
        ranks = list(range(self._spec(self.parameters).world_size))
        numbers = [f"{number}_{index}" if count else number for index in range(len(calls))]
        jobs = [Job(folder=self.folder, job_id=job_id, tasks=ranks) for job_id in numbers]
        jobs[0].paths.submission_file.parent.mkdir(parents=True, exist_ok=True)
        jobs[0].paths.submission_file.write_text(script)
        for job, pickle in zip(jobs, pickles, strict=True):
            with suppress(FileNotFoundError):  # the job has taken the call
                self._hand_over(job, pickle)
        return jobs

    def _hand_over(self, job: Job, pickle: Path) -> None:
        """Give a job its call. Raises FileNotFoundError when the job has already taken it."""
        pickle.stat()
        for rank in range(job.num_tasks):  # results of a job that had the same number before the cluster was reset
            utils.JobPaths(self.folder, job.job_id, rank).result_pickle.unlink(missing_ok=True)
        job.paths.move_temporary_file(pickle, "submitted_pickle")

    def _pickle(self, calls: Sequence[utils.DelayedSubmission], paths: Sequence[Path]) -> None:
        """Pickle each call into its own file."""
        limit_s = self._spec(self.parameters).time_s
        for call, path in zip(calls, paths, strict=True):
            call.set_timeout((limit_s or 0) // 60, self.max_num_timeout)
            call.dump(path)
            if len(calls) * (size_gb := paths[0].stat().st_size / 1024**3) > self.max_pickle_size_gb:
                raise UsageError(
                    f"{len(calls)} x {size_gb:.2g} GB of pickled calls are more than max_pickle_size_gb="
                    f"{self.max_pickle_size_gb:g}; pass paths in place of large objects, or raise the limit"
                )

    def _create_folders(self) -> None:
        """Create what all jobs share, if it is missing, and let the commands find its jobs by their ids."""
        self._shared.mkdir(parents=True, exist_ok=True)
        try:
            self._runs.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self._runs}, next to the folder, cannot be created: {error.strerror}") from error
        registry.remember(self._runs)


@contextmanager
def _naming_parameters() -> Iterator[None]:
    """Let a refusal name parameters in place of options of `slurmddp submit`."""
    try:
        yield
    except SlurmddpError as error:
        raise type(error)(parameters.name_parameters(str(error))) from None
