"""Which run, and which of its jobs, a person means by a word. Reads the runs' folders; asks nobody."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.config.job_array import folder as folder_of
from slurmddp.errors import UsageError
from slurmddp.runs import origin
from slurmddp.runs.layout import LOCAL, RunDir
from slurmddp.runs.submissions import settings_of, submissions
from slurmddp.text import shown

JOB_ID: Final = re.compile(r"[0-9]+(_[0-9]+)?")
"""A job's id as people type it: `17`, or `17_3` for a task of an array."""


@dataclass(frozen=True)
class Target:
    """A run with those of its jobs that are meant, or a job that is of no run here."""

    run: RunDir | None
    jobs: tuple[str, ...]
    """Ids as Slurm shows them, the oldest first; at least one."""

    @property
    def name(self) -> str:
        """What to call it."""
        return self.run.path.name if self.run else self.jobs[-1]


def find(words: Sequence[str], runs_dir: str, *, local: bool = False) -> list[Target]:
    """Return what each word means: a run's name or folder, or a job's id; without words every run, by name.

    `local` adds those that have only run on this machine, without Slurm. Raises UsageError for a name that no run has;
    a job's id may be of no run here.
    """
    if not words:
        return [_whole(run) for run in runs(runs_dir)] + (_all_here(runs_dir) if local else [])
    by_job = _by_job(runs_dir) if any(map(JOB_ID.fullmatch, words)) else {}
    return [_of_id(word, by_job) if JOB_ID.fullmatch(word) else _of_name(word, runs_dir, local=local) for word in words]


def runs(runs_dir: str) -> list[RunDir]:
    """Return the runs in a folder that have been submitted and may be read, by name."""
    folder = Path.cwd() / runs_dir
    found = (RunDir(path) for path in sorted(folder.iterdir()) if path.is_dir()) if folder.is_dir() else ()
    return [run for run in found if os.access(run.submissions, os.R_OK) and run.submissions.is_file()]


def of(run: RunDir) -> Target:
    """Return a run, or a sweep's setting, with all its jobs."""
    return _of_setting(run) if run.sweep else _whole(run)


def _whole(run: RunDir) -> Target:
    return Target(run, tuple(dict.fromkeys(record["job"] for record in submissions(run))))


def one(word: str, runs_dir: str, *, local: bool = False) -> Target:
    """Return the one run, or job, that a word means. Raises UsageError as `find` does, and for a sweep of several."""
    meant = find([word], runs_dir, local=local)[0]
    several = settings(meant)
    if len(several) > 1:
        example = f"{several[0].run.job_name}/{several[0].name}" if several[0].run else several[0].name
        raise UsageError(
            f"{shown(word)} is a sweep of {len(several)} settings; name one, as in {shown(example)}, or look at all by "
            f"`slurmddp status {meant.name}`"
        )
    return several[0]


def settings(target: Target) -> list[Target]:
    """Return a sweep's settings, each with the last of the target's jobs that it was submitted in; else the target."""
    run = target.run
    if run is None or run.sweep:
        return [target]
    found = {name: task for job, tasks in _arrays(run) if job in target.jobs for name, task in tasks}
    return [Target(RunDir(run.path / name), (task,)) for name, task in found.items()] or [target]


def tasks(run: RunDir) -> dict[str, RunDir]:
    """Return the runs of a sweep's tasks, each by the task's id; none of what is no sweep."""
    return {task: RunDir(run.path / name) for _, several in _arrays(run) for name, task in several}


def _arrays(run: RunDir) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the jobs of a sweep, the oldest first, each with the folders of its tasks and their ids."""
    for record in submissions(run):
        if given := settings_of(record):
            yield record["job"], [(folder_of(values), f"{record['job']}_{index}") for index, values in enumerate(given)]


def _here(run: RunDir) -> Target:
    return Target(run, tuple(sorted(path.name for path in run.logs.glob(f"{LOCAL}*") if path.is_dir())))


def _all_here(runs_dir: str) -> list[Target]:
    folder = Path.cwd() / runs_dir
    known = [RunDir(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    found = [_here(run) for run in known if os.access(run.logs, os.R_OK | os.X_OK) and not run.submissions.exists()]
    return [target for target in found if target.jobs]


def _of_name(word: str, runs_dir: str, *, local: bool = False) -> Target:
    if local and word.startswith(LOCAL):
        for one in _all_here(runs_dir):
            if word in one.jobs:
                return Target(one.run, (word,))
    run = RunDir.named(runs_dir, word)
    if "/" in word and not run.path.is_dir():
        run = RunDir.named(".", word)
    target = of(run)
    if not target.jobs and (here := _here(run)).jobs:
        if not local:
            raise UsageError(
                f"{shown(word)} has only run on this machine, by `slurmddp run`: Slurm has no job of it; Ctrl-C ends "
                f"it where it was started, `slurmddp logs {word}` shows its output"
            )
        target = here
    if target.jobs:
        return target
    import difflib  # noqa: PLC0415 needed only when something is wrong

    near = difflib.get_close_matches(word, [known.path.name for known in runs(runs_dir)])
    hint = (
        f"did you mean {' or '.join(near)}?" if near else "`slurmddp status` lists the runs; --runs-dir names another"
    )
    raise UsageError(f"{shown(word)} is no job id, and no run in {runs_dir} that was submitted; {hint}")


def _of_setting(run: RunDir) -> Target:
    own = [task for _, several in _arrays(run.sweep or run) for name, task in several if name == run.path.name]
    return Target(run, tuple(own))


def _of_id(job_id: str, by_job: Mapping[str, RunDir]) -> Target:
    number = job_id.partition("_")[0]
    run = by_job.get(number)
    if run and _is_elsewhere(run, number):
        run = None
    if run is None or number == job_id:
        return Target(run, (job_id,))
    return Target(tasks(run).get(job_id, run), (job_id,))


def _is_elsewhere(run: RunDir, job: str) -> bool:
    return any(origin.of(run, record).elsewhere for record in submissions(run) if record["job"] == job)


def _by_job(runs_dir: str) -> dict[str, RunDir]:
    """Return the run that each job was submitted for, the last one where Slurm has given a number again."""
    newest: dict[str, tuple[str, RunDir]] = {}
    for run in runs(runs_dir):
        for record in submissions(run):
            job, time = record["job"], str(record.get("time", ""))
            known, _ = newest.get(job, ("", run))
            if job not in newest or time > known or (time == known and not origin.of(run, record).elsewhere):
                newest[job] = time, run
    return {job: run for job, (_, run) in newest.items()}
