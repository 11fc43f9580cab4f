"""`slurmddp sweep`: submit many settings of a job as one array, and show their results."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import msgspec

from slurmddp.cli.job_command import JobCommand
from slurmddp.cli.request_options import build_request, dependency_options, sweep_options
from slurmddp.cli.run_arguments import complete_target, runs_dir_option
from slurmddp.cli.screen import print_json, print_message, print_result, screen_width
from slurmddp.cli.submit import check_recorded, print_accepted, print_dry_run
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.errors import UsageError
from slurmddp.outcome import Kind
from slurmddp.runs.files import json_value
from slurmddp.runs.layout import RunDir
from slurmddp.submission import sweep as sweeping
from slurmddp.submission.compatibility import choose_run
from slurmddp.submission.submit_once import Submitted
from slurmddp.text import count, format_table

_MOST_METRICS: Final = 4
"""The table for people has this many columns of metrics at most."""


class _Sweep(JobCommand):
    """The command `sweep`, with `sweep results ...` as a command of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Give the words after `results` to that command."""
        if args[:1] == ["results"]:
            return show_results.make_context(f"{info_name} results", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


@click.command(
    cls=_Sweep, keys=tuple(key for key in JOB_FIELDS if key != "reset"), epilog="--set lr=0.1,0.2 train.py --lr {lr}"
)
@sweep_options
@dependency_options
@click.option("--continue", "change", is_flag=True, help="Continue a sweep although its COMMAND has changed.")
@click.option("--dry-run", is_flag=True, help="Print the script and the answer of sbatch; nothing is queued.")
@click.option("--force", is_flag=True, help="Submit jobs even if they can apparently never start on this cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def sweep(*, change: bool, dry_run: bool, force: bool, as_json: bool, **parameters: Any) -> int:
    """Submit many settings of a job as one array; stdout is only its id.

    Each setting is a run in the folder of the sweep, and is requeued and resumed like any run. The same command again
    submits only the missing settings. `slurmddp sweep results` shows the results.
    """
    request = build_request(parameters)
    array = request.array
    if array is None:
        raise UsageError("there is nothing to sweep over; a sweep takes: --set lr=1e-3,1e-4 train.py --lr {lr}")
    chosen: list[str] = []
    if not change:
        request = choose_run(request, os.environ, chosen.append)
    job = request.resolved.spec
    run = RunDir.named(job.runs_dir, job.job_name)
    if dry_run:
        settings, jobs = sweeping.read_progress(run, array.tasks, os.environ), list[Submitted]()
        if settings.missing:
            missing = msgspec.structs.replace(request, array=array._replace(tasks=settings.missing))
            print_dry_run(missing, chosen, change=change, force=force, as_json=as_json)
            if not as_json:
                print_message(_count_settings(settings, dry_run=True))
            return 0
    else:
        accepted = partial(print_accepted, request=request, chosen=chosen, as_json=as_json, later=True)
        settings, jobs = sweeping.sweep(
            request, array, change=change, force=force, environ=os.environ, notice=print_message, accepted=accepted
        )
    print_message(_count_settings(settings, dry_run=dry_run))
    if as_json:
        print_json(**_as_json(run, settings, jobs))
    for submitted in jobs:
        check_recorded(submitted)
    print_message(
        f"folder of the sweep: {run.path}; its results, once there are some: slurmddp sweep results {run.path.name}"
    )
    return 0


def _count_settings(settings: sweeping.SweepProgress, *, dry_run: bool) -> str:
    done, queued, missing = len(settings.done), len(settings.queued), len(settings.missing)
    others = f", {done} done before" * (done > 0) + f", {queued} queued" * (queued > 0)
    return f"{count(done + queued + missing, 'setting')}: {missing} {'would be ' * dry_run}submitted{others}"


def _as_json(run: RunDir, settings: sweeping.SweepProgress, jobs: Sequence[Submitted]) -> dict[str, Any]:
    return {
        "jobs": [{"job_id": job.job_id.number} for job in jobs],
        "name": run.path.name,
        "run": str(run.path),
        "submitted": [dict(task.values) for task in settings.missing] if jobs else [],
        "queued": [dict(task.values) for task in settings.queued],
        "done": [dict(task.values) for task in settings.done],
    }


@click.command("results")
@click.argument("name", required=False, shell_complete=complete_target)
@click.option("--by", default="loss", metavar="METRIC", help="Metric to sort by. [default: loss]")
@click.option("--highest", is_flag=True, help="The highest value is the best, instead of the lowest.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@runs_dir_option
def show_results(name: str | None, by: str, *, highest: bool, as_json: bool, runs_dir: str) -> None:
    """Show the results of each setting of a sweep, the best first; without NAME, of the sweep submitted last.

    Where no setting has logged a metric, the last line that rank 0 of each has printed is shown.
    """
    sweep = sweeping.find_sweep(name, runs_dir)
    found = sweeping.ranked(sweeping.results(sweep, os.environ), by, highest=highest)
    has_metrics = any(result.metrics for result in found)
    printed = {} if has_metrics and not as_json else sweeping.last_printed(sweep)
    if name is None:
        print_message(f"these are of {sweep.path.name}")
    records = [_result_as_json(result, printed.get(result.run, "")) for result in found]
    print_result({"results": records}, _format_results(found, by, printed, screen_width()), as_json=as_json)
    if not as_json:
        if all(result.outcome.meaning.phase == "queued" for result in found):
            print_message(f"no setting has started; to see why, type: slurmddp status {sweep.path.name}")
        elif not has_metrics:
            advice = "to be ranked, a script calls `run.log(loss=...)`, as that of `slurmddp init --example steps`"
            has_ended = any(result.outcome.kind.final for result in found)
            print_message(f"no setting has logged a metric; {advice if has_ended else 'none has ended'}")


def _result_as_json(result: sweeping.Result, printed: str) -> dict[str, Any]:
    return {
        "settings": dict(result.values),
        "run": str(result.run.path),
        "done": result.outcome.kind is Kind.DONE,
        "outcome": result.outcome.kind,
        "step": result.step,
        "total": result.total,
        "metrics": json_value(result.metrics),
        "last_line": printed or None,
    }


def _format_results(found: Sequence[sweeping.Result], by: str, printed: Mapping[RunDir, str], width: int) -> list[str]:
    keys = [*dict.fromkeys(key for result in found for key in result.values)]
    logged = dict.fromkeys(name for result in found for name in result.metrics)
    names = sorted((name for name in logged if name not in keys), key=lambda name: name != by)[:_MOST_METRICS]
    head = [*keys, *names, "step", "state", "run", "last line of rank 0"]
    rows = []
    for result in found:
        numbers = [f"{result.metrics[name]:.6g}" if name in result.metrics else "" for name in names]
        step = f"{result.step}/{result.total}" if result.total else ""
        values = [result.values.get(key, "") for key in keys]
        run = f"{result.run.path.parent.name}/{result.run.path.name}"
        rows.append([*values, *numbers, step, describe_state(result), run, printed.get(result.run, "")])
    return format_table(rows, head=head, right=range(len(keys), len(head) - 3), width=width)


def describe_state(result: sweeping.Result) -> str:
    """Return how a setting ended, or Slurm's word while its job waits or runs."""
    if result.outcome.kind is Kind.UNKNOWN:
        return "unfinished" if result.run.events.exists() else "not started"
    return result.outcome.meaning.label if result.outcome.final else result.outcome.word.lower()
