"""`slurmddp diagnose`: show why a job failed, and what to type next."""

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from slurmddp.cli.run_arguments import TEXT, parse_since, runs_dir_option
from slurmddp.cli.screen import print_message, print_result, screen_width
from slurmddp.diagnose import diagnosis
from slurmddp.diagnose.failures import find_failures, format_failures
from slurmddp.diagnose.output_files import STDIN, diagnose_output
from slurmddp.diagnose.rule_types import UNKNOWN, format_diagnosis
from slurmddp.diagnose.rules import load_rules
from slurmddp.errors import UsageError
from slurmddp.monitoring.status import read_runs
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir
from slurmddp.runs.registry import other_folders
from slurmddp.slurm.job_info import JobRef, is_job_id
from slurmddp.text import count, quote_value


@click.command()
@click.argument("targets", type=TEXT, metavar="[RUN|JOBID|FILE...]", nargs=-1)
@runs_dir_option
@click.option("--all", "of_all", is_flag=True, help="Show a table of all failures of your runs, by cause.")
@click.option("--since", metavar="TIME", help="With --all: 2026-11-01, or the last 7d, 12h or 30m. [default: 7d]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def diagnose(targets: tuple[str, ...], runs_dir: str, *, of_all: bool, since: str | None, as_json: bool) -> int:
    """Show why a job failed: the cause, the first rank and its host, the log lines that show it, what to type next.

    RUN is a run's name or folder, and means its last job; the default is the run that was started last. The id of a
    job that slurmddp did not submit works too. FILE is the output of any job: a text file, a folder of files, or - for
    standard input, as in: zcat FILE | slurmddp diagnose -. Exit status: 0 if there is an answer, also if nothing
    failed; 1 if the cause is unknown; 2 for an unknown run; 3 if there are no files of the job, and Slurm does not
    answer or know it.
    """
    if of_all:
        if targets:
            raise UsageError("--all is about every run; leave it out, or leave the names out")
        return _show_all(runs_dir, since, as_json=as_json)
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
    print_result({"diagnoses": [asdict(found)]}, format_diagnosis(found), as_json=as_json)
    print_message(*load_rules().ignored)
    return 1 if found.cause == UNKNOWN else 0


def _show_all(runs_dir: str, age: str | None, *, as_json: bool) -> int:
    since = parse_since(age, time.time())
    folders = dict.fromkeys([str(Path.cwd() / runs_dir), *map(str, other_folders(runs_dir))])
    found = [target for folder in folders for target in lookup.survey(folder).submitted]
    runs = read_runs([part for target in found for part in lookup.split(target)], os.environ)
    failures = list(find_failures(runs, since=since, environ=os.environ))
    lines = format_failures(failures, screen_width())
    print_result({"failures": [asdict(failure) for failure in failures]}, lines, as_json=as_json)
    if not (failures or as_json):
        print_message(f"no attempt of {count(len(found), 'run')} failed in this time")
    return 0


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
