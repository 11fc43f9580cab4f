"""Finds the run and the job that a word names, or the newest ones. Reads the runs' folders; Slurm is not asked."""

from collections.abc import Sequence

from slurmddp.errors import UsageError
from slurmddp.monitoring.status import last_submission
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir
from slurmddp.runs.registry import hint_elsewhere
from slurmddp.runs.submissions import last_time
from slurmddp.slurm.job_info import JobRef, is_job_id
from slurmddp.text import quote_value


def find_target(word: str | None, runs_dir: str) -> lookup.Target:
    """Return what a word names: a run, a whole sweep, or a job, which may be of no run here.

    Without a word it is the run that was submitted last, or the last run on this machine when none was submitted.
    Raises UsageError when there is none.
    """
    if word is not None:
        return lookup.find([word], runs_dir, local=True)[0]
    known = [target for target in lookup.find([], runs_dir, local=True) if target.jobs]
    if not known:
        hint = hint_elsewhere() or "--runs-dir names another folder"
        raise UsageError(f"nothing was submitted in {runs_dir} yet; {hint}")
    return max(known, key=lambda target: (last_time(target.records), target.jobs[-1]))


def find_run(word: str | None, runs_dir: str) -> RunDir:
    """Return the one run that a word names; also one that `slurmddp` did not submit, if it has events.

    Raises UsageError as `find_target` does, for a sweep of several settings, and for a job of no run here.
    """
    if word is not None:
        run = RunDir.named("." if "/" in word else runs_dir, word)
        if run.events.is_file() and not run.submissions.is_file():
            return run
    found = lookup.require_one(find_target(word, runs_dir), word or "")
    if found.run is None:
        raise UsageError(f"job {quote_value(found.name)} is of no run in {runs_dir}; --runs-dir names another folder")
    return found.run


def next_job(word: str | None, run: RunDir, job_id: str) -> str:
    """Return the run's next job after this one; empty when there is none, or when the word names this job alone."""
    if word and is_job_id(word):
        return ""
    later = iter(lookup.find_all_jobs(run).jobs)
    return next(later, "") if job_id in later else ""


def newest_with_output(run: RunDir, jobs: Sequence[str]) -> str:
    """Return the newest job that has printed something, else that of the last submission which starts first.

    Raises UsageError when it is a whole array.
    """
    for job_id in reversed(jobs):
        refs = [JobRef.parse(path.stem) for path in run.logs.glob(f"{job_id}_*.out")]
        if tasks := [task for task in refs if task.is_task]:
            last = max(tasks, key=lambda task: task.task_index or 0)
            raise UsageError(f"job {job_id} is an array; give one task of it, as in {last}")
        if run.batch_log(job_id).exists() or run.attempts(job_id):
            return job_id
    return last_submission(lookup.Target(run, tuple(jobs))).jobs[0]
