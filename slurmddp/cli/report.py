"""`slurmddp report`: a run as one HTML page."""

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_options import runs_dir_option, write
from slurmddp.errors import UsageError
from slurmddp.report.collect import as_json, gather
from slurmddp.report.html import page
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir, write_whole
from slurmddp.runs.submissions import submissions
from slurmddp.text import shown

STDOUT: Final = "-"


@click.command()
@click.argument("word", metavar="[RUN|JOBID]", required=False)
@click.option("-o", "--out", metavar="FILE", help="Where to write it; - is stdout. [default: report.html of the run]")
@runs_dir_option
@click.option("--json", "as_figures", is_flag=True, help="Print the figures as JSON; no page is written.")
def report(word: str | None, *, out: str | None, runs_dir: str, as_figures: bool) -> None:
    """Write a run as one HTML page; stdout is its path. Without RUN, the run that was submitted last.

    What became of it, where its time went (goodput), each attempt with its checkpoints and why it ended, loss and
    throughput over the steps, its configuration. The page is one file that loads nothing from anywhere.
    """
    run = _run(word, runs_dir)
    found = gather(run, os.environ, now=time.time())
    if as_figures:
        click.echo(json.dumps(as_json(found)))
    elif out == STDOUT:
        write(sys.stdout, page(found))
    else:
        path = Path(out) if out else run.report
        write_whole(path, page(found))
        click.echo(str(path))


def _run(word: str | None, runs_dir: str) -> RunDir:
    """Return the run that is meant; one of this machine alone, by `slurmddp run`, is one too."""
    word = _latest(runs_dir).path.name if word is None else word
    own = RunDir(Path.cwd() / word) if "/" in word else RunDir.named(runs_dir, word)
    if own.events.is_file() and not own.submissions.is_file():
        return own
    found = lookup.one(word, runs_dir)
    if found.run is None:
        raise UsageError(f"job {shown(word)} is of no run in {runs_dir}; give a RUN, or --runs-dir")
    return found.run


def _latest(runs_dir: str) -> RunDir:
    known = [found.run for found in lookup.find([], runs_dir) if found.run and found.jobs]
    if not known:
        raise UsageError(f"no run in {shown(runs_dir)} was submitted; give a RUN, or --runs-dir")
    return max(known, key=_submitted)


def _submitted(run: RunDir) -> datetime:
    times = [str(record.get("time", "")) for record in submissions(run)]
    return max(map(_moment, times))


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(0).astimezone()
