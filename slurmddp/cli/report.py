"""`slurmddp report`: write a run as one HTML page."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_command import runs_dir_option, write_bytes
from slurmddp.errors import UsageError
from slurmddp.report.collect import collect_report, make_json
from slurmddp.report.html import render_page
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir, write_whole
from slurmddp.runs.submissions import submitted_at
from slurmddp.text import quote_value

STDOUT: Final = "-"


@click.command()
@click.argument("word", metavar="[RUN|JOBID]", required=False)
@click.option(
    "-o", "--out", metavar="FILE", help="File to write; - is stdout. [default: report.html in the run's folder]"
)
@runs_dir_option
@click.option("--json", "as_figures", is_flag=True, help="Print the figures as JSON; no page is written.")
def report(word: str | None, *, out: str | None, runs_dir: str, as_figures: bool) -> None:
    """Write a run as one HTML page; stdout is its path. Without RUN, the run that was submitted last.

    The page shows the result of the run, how its time was spent (goodput), each attempt with its checkpoints and the
    reason of its end, loss and throughput over the steps, and the configuration. It is one file that loads no others.
    """
    run = _find_run(word, runs_dir)
    found = collect_report(run, os.environ, now=time.time())
    if as_figures:
        click.echo(json.dumps(make_json(found)))
    elif out == STDOUT:
        write_bytes(sys.stdout, render_page(found))
    else:
        path = Path(out) if out else run.report
        write_whole(path, render_page(found))
        click.echo(str(path))


def _find_run(word: str | None, runs_dir: str) -> RunDir:
    """Return the run that a word names, which `slurmddp run` may have made, too."""
    word = _last_submitted(runs_dir).path.name if word is None else word
    run = RunDir(Path.cwd() / word) if "/" in word else RunDir.named(runs_dir, word)
    if run.events.is_file() and not run.submissions.is_file():
        return run
    found = lookup.find_one(word, runs_dir)
    if found.run is None:
        raise UsageError(f"job {quote_value(word)} belongs to no run in {runs_dir}; give a RUN, or --runs-dir")
    return found.run


def _last_submitted(runs_dir: str) -> RunDir:
    known = [found.run for found in lookup.find([], runs_dir) if found.run and found.jobs]
    if not known:
        raise UsageError(f"no run in {quote_value(runs_dir)} was submitted; give a RUN, or --runs-dir")
    return max(known, key=submitted_at)
