"""Finds the run and the jobs that a word names. Reads the runs' folders; Slurm is not asked."""

from __future__ import annotations
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from slurmddp.config.job_array import folder_name
from slurmddp.errors import UsageError
from slurmddp.runs import registry
from slurmddp.runs.files import read_end, warn_once
from slurmddp.runs.layout import SUBMISSIONS, RunDir
from slurmddp.runs.submissions import parse_submissions, read_origin, settings_of, submissions
from slurmddp.slurm.job_info import LOCAL, JobRef, is_job_id
from slurmddp.text import list_some, quote_value, suggest

_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Target:
    """A run with the selected jobs of it, or a job that belongs to no run here."""

    run: RunDir | None
    jobs: tuple[str, ...]
    """Ids as Slurm shows them, the oldest first; at least one."""
    known: Sequence[Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    """The records, if they have been read."""

    @cached_property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The records of the run's submissions, the oldest first, read once; none of a job that belongs to no run."""
        return self.known if self.known is not None else submissions(self.run) if self.run else ()

    @property
    def tasks(self) -> dict[str, RunDir]:
        """The run of each task of a sweep's jobs, the oldest first, by the task's id; empty for another target."""
        run, found = cast("RunDir", self.run), dict[str, RunDir]()  # without a run there are no records
        for record in self.records:
            given = settings_of(record) if record["job"] in self.jobs else []
            indices = record.get("indices") or range(len(given))  # an array of the user's own has its own numbers
            for index, values in zip(indices, given, strict=False):
                found[f"{record['job']}_{index}"] = RunDir(run.path / folder_name(values))
        return found

    def only(self, jobs: tuple[str, ...]) -> Target:
        """Return the target with some of its jobs."""
        return Target(self.run, jobs, self.records)

    @classmethod
    def of_run(cls, run: RunDir, records: Sequence[Mapping[str, Any]]) -> Target:
        """Return a run with all its jobs."""
        return cls(run, tuple(dict.fromkeys(record["job"] for record in records)), records)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.run.path.name if self.run else self.jobs[-1]


def find(words: Sequence[str], runs_dir: str, *, local: bool = False) -> list[Target]:
    """Return the target of each word, which is a run's name or folder, or a job's id; without words, of every run.

    `local` adds runs that have only run on this machine. Raises UsageError for a name that no run has; the id of a job
    may belong to no run here.
    """
    if not words:
        found = survey(runs_dir)
        return found.submitted + (_with_local_jobs(found.others) if local else [])
    by_job = _runs_by_job(runs_dir) if any(map(is_job_id, words)) else {}
    if any(is_job_id(word) and JobRef.parse(word).array_id not in by_job for word in words):
        names = [name for word in filter(is_job_id, words) for name in (word, f"*.runs/{word}")]  # of an executor
        folders = Path.cwd() / runs_dir, *registry.other_folders(runs_dir)
        calls = (path for folder in folders for name in names for path in folder.glob(name))
        by_job = {path.name: RunDir(path) for path in calls if (path / "logs").is_dir()} | by_job
        for folder in reversed(registry.other_folders(runs_dir)):
            by_job = _runs_by_job(str(folder)) | by_job
    return [
        _find_by_id(word, by_job) if is_job_id(word) else _find_by_name(word, runs_dir, local=local) for word in words
    ]


class Survey(NamedTuple):
    """The folders in a folder of runs."""

    submitted: list[Target]
    """The submitted runs of a folder, by name, with all their jobs."""
    others: list[RunDir]
    """Folders without a submission."""
    unreadable: list[RunDir]


def survey(runs_dir: str) -> Survey:
    """Return the runs in a folder; a damaged one is left out with a warning.

    There may be ten thousand: the folder is listed once, and of each run one file is opened.
    """
    folder = Path.cwd() / runs_dir
    found = Survey([], [], [])
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names alone
            run = RunDir(folder / name)
            try:
                records = parse_submissions(read_end(f"{run.path}/{SUBMISSIONS}").splitlines())
            except FileNotFoundError:
                found.others.append(run)
            except PermissionError:
                found.unreadable.append(run)
            except NotADirectoryError:
                continue
            except OSError as error:
                warn_once(f"run {name} is left out: {run.submissions}: {error.strerror}")
            else:
                if records:
                    found.submitted.append(Target.of_run(run, records))
                else:
                    warn_once(f"run {name} is left out: {run.submissions} is damaged")
    return found


def find_all_jobs(run: RunDir) -> Target:
    """Return a run, or a sweep's setting, with all its jobs."""
    whole = Target.of_run(run.sweep or run, submissions(run.sweep or run))
    return whole if run.sweep is None else next((one for one in split(whole) if one.run == run), Target(run, ()))


def require_one(target: Target, word: str = "") -> Target:
    """Return the target, of a sweep its only setting. Raises UsageError, with the word, for a sweep of several."""
    several = settings(target)
    if len(several) > 1:
        example = f"{several[0].run.job_name}/{several[0].name}" if several[0].run else several[0].name
        raise UsageError(
            f"{quote_value(word or target.name)} is a sweep of {len(several)} settings; name one, as in "
            f"{quote_value(example)}, or look at all by `slurmddp status {target.name}`"
        )
    return several[0]


def settings(target: Target) -> list[Target]:
    """Return a sweep's settings, each with its task in the last of the target's jobs; else the target itself."""
    return [one.only(one.jobs[-1:]) for one in split(target)] if target.tasks else [target]


def split(target: Target) -> list[Target]:
    """Return a sweep's settings, each with all its tasks and the records of their arrays; else the target itself."""
    found: dict[RunDir, list[str]] = {}
    for task, setting in target.tasks.items():
        found.setdefault(setting, []).append(task)
    records = {record["job"]: record for record in target.records}
    return [
        Target(setting, tuple(own), [records[JobRef.parse(task).array_id] for task in own])
        for setting, own in found.items()
    ] or [target]


def _local_jobs(run: RunDir) -> Target:
    return Target(run, tuple(sorted(path.name for path in run.logs.glob(f"{LOCAL}*") if path.is_dir())))


def _with_local_jobs(runs: Iterable[RunDir]) -> list[Target]:
    found = [_local_jobs(run) for run in runs if os.access(run.logs, os.R_OK | os.X_OK)]
    return [target for target in found if target.jobs]


def _find_by_name(word: str, runs_dir: str, *, local: bool = False) -> Target:
    if local and JobRef.parse(word).is_local:
        for one in _with_local_jobs(survey(runs_dir).others):
            if word in one.jobs:
                return Target(one.run, (word,))
    run = RunDir.named(runs_dir, word)
    target = find_all_jobs(run)
    if "/" in word and not (target.jobs or run.path.is_dir()):  # a setting that waits has jobs, and no folder yet
        run = RunDir.named(".", word)
        target = find_all_jobs(run)
    if not target.jobs and (here := _local_jobs(run)).jobs:
        if not local:
            raise UsageError(
                f"{quote_value(word)} has only run on this machine, by `slurmddp run`: Slurm has no job of it; Ctrl-C "
                f"ends it where it was started, `slurmddp logs {word}` shows its output"
            )
        target = here
    if target.jobs:
        return target
    record = (run.sweep or run).submissions
    if record.exists() and not find_all_jobs(run.sweep or run).jobs:
        raise UsageError(f"run {word}: {record} is damaged, and its jobs are not known; its output is in {run.logs}")
    if elsewhere := _find_elsewhere(word, runs_dir):
        return elsewhere
    otherwise = "`slurmddp status` lists the runs; --runs-dir names another folder"
    hint = suggest(word, (known.name for known in survey(runs_dir).submitted), otherwise, cutoff=0.6)
    raise UsageError(f"{quote_value(word)} is not a job id, nor a submitted run in {runs_dir}; {hint}")


def _find_elsewhere(word: str, runs_dir: str) -> Target | None:
    """Return the run of that name in another folder of this user; None without one. Raises UsageError for several."""
    runs = [RunDir(folder / word) for folder in registry.other_folders(runs_dir) if (folder / word).is_dir()]
    found = [target for target in map(find_all_jobs, runs) if target.jobs]
    if len(found) > 1:
        places = list_some([str(target.run.path) for target in found if target.run], _MOST_NAMED)
        raise UsageError(f"{quote_value(word)} is a run in several folders; name one of these: {places}")
    return next(iter(found), None)


def _find_by_id(job_id: str, by_job: Mapping[str, RunDir]) -> Target:
    number = JobRef.parse(job_id).array_id
    run = by_job.get(job_id) or by_job.get(number)  # a task of an executor has a folder of its own
    if run and any(read_origin(run, record).elsewhere for record in submissions(run) if record["job"] == number):
        run = None  # it is a copy, and the job that of the original
    if run is None or number == job_id:
        return Target(run, (job_id,))
    return Target(find_all_jobs(run).tasks.get(job_id, run), (job_id,))


def _runs_by_job(runs_dir: str) -> dict[str, RunDir]:
    """Return the run of each job; where two runs have a job of this number, the later one."""
    newest: dict[str, tuple[str, RunDir]] = {}
    for target in survey(runs_dir).submitted:
        run = cast("RunDir", target.run)
        for record in target.records:
            job, time = record["job"], str(record.get("time", ""))
            known, _ = newest.get(job, ("", run))
            if job not in newest or time > known or (time == known and not read_origin(run, record).elsewhere):
                newest[job] = time, run
    return {job: run for job, (_, run) in newest.items()}
