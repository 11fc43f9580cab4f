"""Which job's output is meant by a word. Reads the runs' folders; asks nobody."""

from collections.abc import Sequence

from slurmddp.errors import UsageError
from slurmddp.monitoring.status import current
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions
from slurmddp.text import shown


def job_of(word: str | None, runs_dir: str) -> tuple[RunDir, str]:
    """Return the run and the job: of a run the newest with output, of no word the run that was submitted last.

    A run of this machine alone is one too; of no word where nothing was submitted.

    Raises UsageError when there is none, or when it is a whole array.
    """
    if word is None:
        return _newest(runs_dir)
    found = lookup.one(word, runs_dir, local=True)
    if found.run is None:
        raise UsageError(f"job {shown(word)} is of no run in {runs_dir}; --runs-dir names another folder")
    return found.run, _with_output(found.run, found.jobs)


def next_job(word: str | None, run: RunDir, job_id: str) -> str:
    """Return the job that comes after one of a run; empty when there is none, or the word means that job alone."""
    if word and lookup.JOB_ID.fullmatch(word):
        return ""
    later = iter(lookup.of(run).jobs)
    return next(later, "") if job_id in later else ""


def _newest(runs_dir: str) -> tuple[RunDir, str]:
    times = [(str(record.get("time", "")), run) for run in lookup.runs(runs_dir) for record in submissions(run)[-1:]]
    if not times:
        here = [(one.jobs[-1], one.run) for one in lookup.find([], runs_dir, local=True) if one.run]
        if here:
            job_id, run = max(here, key=lambda pair: pair[0])
            return run, job_id
        raise UsageError(f"nothing was submitted in {runs_dir} yet; --runs-dir names another folder")
    newest = max(times, key=lambda pair: pair[0])[1]
    meant = lookup.one(newest.path.name, runs_dir)
    return meant.run or newest, _with_output(meant.run or newest, meant.jobs)


def _with_output(run: RunDir, jobs: Sequence[str]) -> str:
    """Return the newest job that has printed something, else that of the last submission which starts first."""
    for job_id in reversed(jobs):
        if tasks := _tasks(run, job_id):
            raise UsageError(f"job {job_id} is an array; give one task of it, as in {tasks[-1]}")
        if run.batch_log(job_id).exists() or run.attempts(job_id):
            return job_id
    return current(lookup.Target(run, tuple(jobs))).jobs[0]


def _tasks(run: RunDir, job_id: str) -> list[str]:
    """Return the tasks of an array that have output, by number."""
    names = [path.stem for path in run.logs.glob(f"{job_id}_*.out")]
    tasks = [name for name in names if lookup.JOB_ID.fullmatch(name)]
    return sorted(tasks, key=lambda task: int(task.partition("_")[2]))
