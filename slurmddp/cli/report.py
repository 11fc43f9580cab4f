"""`slurmddp report`: write a run, a sweep, or all runs of a folder as one HTML page."""

import os
import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from slurmddp.cli.run_arguments import TEXT, find_run, parse_since, runs_dir_option
from slurmddp.cli.screen import print_result
from slurmddp.errors import UsageError
from slurmddp.report.collect import collect_report, collect_rows, make_json
from slurmddp.report.html import render_page, render_runs
from slurmddp.runs import lookup
from slurmddp.runs.files import write_whole
from slurmddp.runs.layout import RunDir
from slurmddp.submission.sweep import ranked, results


@click.command()
@click.argument("word", type=TEXT, metavar="[RUN|SWEEP|JOBID]", required=False)
@runs_dir_option
@click.option("--all", "of_all", is_flag=True, help="Write all runs of the folder as one page.")
@click.option("--since", metavar="TIME", help="With --all: 2026-11-01, or the last 7d, 12h or 30m. [default: 7d]")
@click.option("--by", metavar="METRIC", help="Of a sweep: the metric of its best setting. [default: loss]")
@click.option("--highest", is_flag=True, help="Of a sweep: the highest value is the best, instead of the lowest.")
@click.option("--json", "as_figures", is_flag=True, help="Print the figures as JSON; no page is written.")
def report(
    word: str | None, *, runs_dir: str, of_all: bool, since: str | None, by: str | None, highest: bool, as_figures: bool
) -> None:
    """Write a run as one HTML page, report.html in its folder; stdout is its path.

    Without RUN, it is the run that was submitted last. The page shows the result of the run, how its time was spent
    (goodput), each attempt with its checkpoints and the reason of its end, loss and throughput over the steps, and the
    configuration. That of a sweep shows its settings with their results, that of --all the runs since a time, with
    GPU-hours by day and failures by cause. A page is one file that loads no others.
    """
    if word and of_all:
        raise UsageError("--all is about every run; leave it out, or leave the name out")
    if since is not None and not of_all:
        raise UsageError("--since needs --all; add it, or leave --since out")
    run = RunDir(Path.cwd() / runs_dir) if of_all else find_run(word, runs_dir, sweeps=True)
    targets = lookup.find([], runs_dir, local=True) if of_all else [lookup.find_all_jobs(run)]
    if not targets:
        raise UsageError(f"there is no run in {runs_dir}; --runs-dir names another folder")
    is_sweep = not of_all and bool(targets[0].tasks)
    if (by or highest) and not is_sweep:
        raise UsageError("--by and --highest are for a sweep; name one, or leave them out")
    if not as_figures and (why := run.explain_strange()):  # another user could lead the page elsewhere
        what = "--all" if of_all else shlex.quote(word or run.path.name)
        instead = f"`slurmddp report {what} --json` prints the figures"
        raise UsageError(f"no page is written to the run's folder: {why}; {instead}")
    now = time.time()
    if of_all or is_sweep:
        begin = parse_since(since, now) if of_all else 0.0
        rows = collect_rows(targets, os.environ, begin, now)
        if is_sweep:
            known, by = {row.run: row for row in rows}, by or "loss"
            found = ranked(results(run, os.environ), by, highest=highest)
            rows = [replace(known[one.run], result=one) for one in found]
        figures: Any = {"since": begin, "until": now, "runs": [*map(make_json, rows)]}
        page = partial(render_runs, run, rows, since=begin, now=now, by=by or "")
    else:
        one = collect_report(run, os.environ, now=now)
        figures, page = make_json(one), partial(render_page, one)
    if not as_figures:
        write_whole(run.report, page())
    print_result(figures, [str(run.report)], as_json=as_figures)
