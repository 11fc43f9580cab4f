"""`slurmddp diagnose`: show why a job failed, and what to type next."""

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import TEXT, runs_dir_option
from slurmddp.diagnose import diagnosis
from slurmddp.diagnose.failures import compare_with_others, find_failures, format_failures
from slurmddp.diagnose.output_files import STDIN, diagnose_output
from slurmddp.diagnose.rule_types import NO_FAILURE, UNKNOWN, format_diagnosis
from slurmddp.diagnose.rules import load_rules
from slurmddp.errors import UsageError
from slurmddp.monitoring.status import query_jobs
from slurmddp.outcome import Kind
from slurmddp.runs import lookup
from slurmddp.runs.facts import read_job
from slurmddp.runs.layout import RunDir
from slurmddp.runs.registry import other_folders
from slurmddp.slurm.job_info import JobInfo, JobRef, is_job_id
from slurmddp.text import count, quote_value

_WEEK: Final = "7d"
_SECONDS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0}


@click.command()
@click.argument("targets", type=TEXT, metavar="[RUN|JOBID|FILE...]", nargs=-1)
@runs_dir_option
@click.option("--all", "of_all", is_flag=True, help="Show a table of all failures of your runs, by cause.")
@click.option("--since", metavar="TIME", help="With --all: the last 7d, 12h or 30m. [default: 7d]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def diagnose(targets: tuple[str, ...], runs_dir: str, *, of_all: bool, since: str | None, as_json: bool) -> int:
    """Show why a job failed: the cause, the first rank and its host, the log lines that show it, what to type next.

    RUN is a run's name or folder, and means its last job; the default is the run that was started last. The id of a
    job that slurmddp did not submit works too. FILE is the output of any job: a text file, also compressed (.gz, .xz,
    .bz2, .zst), a folder of files, or - for standard input. Exit status: 0 if there is an answer, also if nothing
    failed; 1 if the cause is unknown; 2 for an unknown run; 3 if there are no files of the job, and Slurm does not
    answer or know it.
    """
    if of_all:
        if targets:
            raise UsageError("--all is about every run; leave it out, or leave the names out")
        return _show_all(runs_dir, _WEEK if since is None else since, as_json=as_json)
    if since is not None:
        raise UsageError("--since needs --all; add it, or leave --since out")
    if targets and all(_is_output(word, runs_dir) for word in targets):
        found = diagnose_output(targets, sys.stdin.buffer)
    else:
        if len(targets) > 1:
            wrong = next(word for word in targets if not _is_output(word, runs_dir))
            raise UsageError(f"there is no file {quote_value(wrong)}; name the files of one job, or one RUN or JOBID")
        run, job_id = _find_job(targets[0] if targets else None, runs_dir)
        found = diagnosis.diagnose(run, job_id, os.environ)
        if run and found.cause not in NO_FAILURE:
            found = compare_with_others(found, run)
    click.echo(json.dumps(asdict(found)) if as_json else "\n".join(format_diagnosis(found)))
    for message in load_rules().ignored:
        print_message(message)
    return 1 if found.cause == UNKNOWN else 0


def _show_all(runs_dir: str, age: str, *, as_json: bool) -> int:
    match = re.fullmatch(r"(\d+)([dhm])", age)
    if match is None:
        raise UsageError(f"--since: {quote_value(age)} is not a number of days, hours or minutes, as in 7d, 12h, 30m")
    since = time.time() - float(match[1]) * _SECONDS[match[2]]
    folders = dict.fromkeys([str(Path.cwd() / runs_dir), *map(str, other_folders(runs_dir))])
    found = [run for folder in folders for run in lookup.runs(folder)]
    settings = [one for run in found for one in (run, *lookup.tasks(run).values())]
    failures = list(find_failures(settings, since=since, answers=_ask_for_ends(found), environ=os.environ))
    if as_json:
        click.echo(json.dumps([asdict(failure) for failure in failures]))
    elif failures:
        click.echo("\n".join(format_failures(failures)))
    else:
        print_message(f"no attempt of {count(len(found), 'run')} failed in this time")
    return 0


def _ask_for_ends(found: Sequence[RunDir]) -> dict[RunDir, dict[str, JobInfo]]:
    """Return what Slurm says of the jobs that have recorded no end, as with a lost node or a time limit.

    It is asked of cancelled ones too: to the ranks, a batch script that was ended by a signal looks the same.
    """
    unended = []
    for part in (part for run in found for part in lookup.settings(lookup.find_all_jobs(run))):
        ends = {job_id: read_job(part.run, job_id, silent=True).outcome for job_id in part.jobs} if part.run else {}
        jobs = [job_id for job_id, end in ends.items() if not end.final or end.kind is Kind.CANCELLED]
        unended += [part.only(tuple(jobs))] if jobs else []
    answers: dict[RunDir, dict[str, JobInfo]] = {}
    for status in query_jobs(unended, os.environ):
        if status.run and status.slurm:
            answers.setdefault(status.run, {})[status.job_id] = status.slurm
    return answers


def _is_output(word: str, runs_dir: str) -> bool:
    """Return whether a word names output, not a run or a job. Raises UsageError for a path that cannot be output."""
    path = Path(word)
    if word == STDIN or path.is_file():
        return True
    if not path.is_dir():
        if path.exists():
            raise UsageError(f"{quote_value(word)} is not a regular file; name another, or give - for standard input")
        return False
    if is_job_id(word) or _is_run(RunDir(path)) or _is_run(RunDir.named(runs_dir, word)):
        return False
    if any(path.glob("*/submissions.jsonl")):
        raise UsageError(f"{quote_value(word)} is a folder of runs; name one of them")
    return True


def _is_run(run: RunDir) -> bool:
    return run.submissions.exists() or run.events.exists() or run.sweep is not None


def _find_job(target: str | None, runs_dir: str) -> tuple[RunDir | None, str]:
    """Return the run and the job that a word names; without one, the job of the run that was started last."""
    if target is None:
        newest = _newest(Path(runs_dir).glob("*/logs"))
        if newest is None:
            raise UsageError(f"there is no run in {runs_dir}; give the id of a job, or --runs-dir")
        target = newest.parent.name
    if not is_job_id(target):
        run = RunDir.named("." if "/" in target else runs_dir, target)
        newest = _newest(filter(Path.is_dir, run.logs.glob("*")))
        if newest and JobRef.parse(newest.name).is_local:
            return run, newest.name
    try:
        found = lookup.find([target], runs_dir)[0]
    except UsageError as error:
        raise UsageError(f"there is no file {quote_value(target)}, and {error}") from error
    return found.run, found.jobs[-1]


def _newest(paths: Iterable[Path]) -> Path | None:
    return max(paths, key=lambda path: path.stat().st_mtime, default=None)
