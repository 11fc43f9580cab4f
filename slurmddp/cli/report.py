"""`slurmddp report`: write a run as one HTML page."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_command import write_bytes
from slurmddp.cli.run_arguments import TEXT, find_run, runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.report.collect import collect_report, make_json
from slurmddp.report.html import render_page
from slurmddp.runs.files import check_out_file, write_whole

STDOUT: Final = "-"


@click.command()
@click.argument("word", type=TEXT, metavar="[RUN|JOBID]", required=False)
@click.option(
    *("-o", "--out"),
    type=TEXT,
    metavar="FILE",
    help="File to write; - is stdout. [default: report.html in the run's folder]",
)
@runs_dir_option
@click.option("--json", "as_figures", is_flag=True, help="Print the figures as JSON; no page is written.")
def report(word: str | None, *, out: str | None, runs_dir: str, as_figures: bool) -> None:
    """Write a run as one HTML page; stdout is its path. Without RUN, the run that was submitted last.

    The page shows the result of the run, how its time was spent (goodput), each attempt with its checkpoints and the
    reason of its end, loss and throughput over the steps, and the configuration. It is one file that loads no others.
    """
    if out and as_figures:
        raise UsageError("--out is for the page, and --json prints figures on stdout; leave one of them out")
    if out and out != STDOUT:
        check_out_file(out, "--out")
    run = find_run(word, runs_dir)
    if not (out or as_figures) and (why := run.explain_strange()):  # another user could lead the page elsewhere
        raise UsageError(f"no page is written to the run's folder: {why}; or give a FILE: --out FILE")
    found = collect_report(run, os.environ, now=time.time())
    if as_figures:
        click.echo(json.dumps(make_json(found)))
    elif out == STDOUT:
        write_bytes(sys.stdout, render_page(found))
    else:
        path = Path(out) if out else run.report
        write_whole(path, render_page(found))
        click.echo(str(path))
