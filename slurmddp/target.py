"""Which run, and which of its jobs, a person means by a word. Reads the runs' folders; asks nobody."""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.fields import shown
from slurmddp.handover import submissions
from slurmddp.rundir import RunDir

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


def find(words: Sequence[str], runs_dir: str) -> list[Target]:
    """Return what each word means: a run's name or folder, or a job's id; without words every run, by name.

    Raises UsageError for a name that no run has; a job's id may be of no run here.
    """
    if not words:
        return [_whole(run) for run in runs(runs_dir)]
    by_job = _by_job(runs_dir) if any(map(JOB_ID.fullmatch, words)) else {}
    return [_of_id(word, by_job) if JOB_ID.fullmatch(word) else _of_name(word, runs_dir) for word in words]


def runs(runs_dir: str) -> list[RunDir]:
    """Return the runs in a folder that have been submitted and may be read, by name."""
    folder = Path.cwd() / runs_dir
    found = (RunDir(path) for path in sorted(folder.iterdir()) if path.is_dir()) if folder.is_dir() else ()
    return [run for run in found if os.access(run.submissions, os.R_OK) and run.submissions.is_file()]


def _whole(run: RunDir) -> Target:
    return Target(run, tuple(dict.fromkeys(record["job"] for record in submissions(run))))


def _of_name(word: str, runs_dir: str) -> Target:
    run = RunDir(Path.cwd() / word) if "/" in word else RunDir.named(runs_dir, word)
    if run.submissions.is_file() and (target := _whole(run)).jobs:
        return target
    near = difflib.get_close_matches(word, [known.path.name for known in runs(runs_dir)])
    hint = (
        f"did you mean {' or '.join(near)}?" if near else "`slurmddp status` lists the runs; --runs-dir names another"
    )
    raise UsageError(f"{shown(word)} is no job id, and no run in {runs_dir} that was submitted; {hint}")


def _of_id(job_id: str, by_job: Mapping[str, RunDir]) -> Target:
    return Target(by_job.get(job_id.partition("_")[0]), (job_id,))


def _by_job(runs_dir: str) -> dict[str, RunDir]:
    """Return the run that each job was submitted for, the last one where Slurm has given a number again."""
    newest: dict[str, tuple[str, RunDir]] = {}
    for run in runs(runs_dir):
        for record in submissions(run):
            job, time = record["job"], str(record.get("time", ""))
            known, _ = newest.get(job, ("", run))
            if job not in newest or time > known or (time == known and _is_named(run, job)):
                newest[job] = time, run
    return {job: run for job, (_, run) in newest.items()}


def _is_named(run: RunDir, job: str) -> bool:
    """Tell whether a job's script has the run's name; in a copy of a run's folder it has not."""
    with suppress(OSError):
        return f"--job-name={run.path.name}\n".encode() in run.submitted_script(job).read_bytes()
    return False
