"""The request made of a command line: the job, its dependencies, the settings of a sweep, the number of ranks."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from slurmddp.cli.job_command import resolve_job
from slurmddp.cli.screen import print_message
from slurmddp.cluster import request as requests
from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.resolve import RECIPE, Resolved
from slurmddp.errors import UsageError
from slurmddp.text import count, quote_value


def dependency_options(function: Any) -> Any:
    """Add the options that name the jobs to wait for."""
    ok = click.option(
        "--after-ok", multiple=True, metavar="JOBID|RUN", help="Start after that job has succeeded. Repeatable."
    )
    ended = click.option(
        "--after",
        multiple=True,
        metavar="JOBID|RUN",
        help="Start after that job, or the last job of that run, has ended, successful or not. Repeatable.",
    )
    return ended(ok(function))


def sweep_options(function: Any) -> Any:
    """Add the options that describe the settings of a sweep."""
    sets = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE,...",
        help="Values for {KEY} in COMMAND, or for that option of the bundled worker; 1..5 is a range. Repeatable.",
    )
    zipped = click.option(
        "--zip", "zipped", is_flag=True, help="Combine first values with first values, second with second, ..."
    )
    parallel = click.option(
        "--max-parallel",
        type=click.IntRange(min=1),
        metavar="N",
        help="Most settings that run at the same time [default: all].",
    )
    return sets(zipped(parallel(function)))


def build_request(parameters: dict[str, Any]) -> Request:
    """Return the job that a command line describes: with its dependencies, the values of the cluster, and its array."""
    resolved = add_dependencies(resolve_job(parameters), parameters["after"], parameters["after_ok"])
    if parameters.get("sets") and resolved.origins["resume_args"].startswith(RECIPE):
        resolved = resolved.replace("a sweep has no recipe", resume_args=None, checkpoints=None)
    spec, origin = resolved.spec, resolved.origins["resume_args"]
    for name in spec.literal_variables:
        print_message(f"${name} stays as it is; for its value in the job, write {{{name}}}")
    if origin.startswith(RECIPE):
        print_message(
            f"by {origin}, COMMAND is started again with {spec.resume_args} once there is {spec.checkpoints}; "
            "--no-recipe switches this off"
        )
    request = fill(resolved)
    return expand_sweep(request, parameters) if "sets" in parameters else request


def add_dependencies(resolved: Resolved, after: Sequence[str], after_ok: Sequence[str]) -> Resolved:
    """Return the job with the jobs of `--after` and `--after-ok` added to its `--dependency`.

    Raises UsageError for an unknown run, and for a `--dependency` that joins conditions by `?` (or), see sbatch(1).
    """
    if not (after or after_ok):
        return resolved
    given, runs_dir = resolved.spec.dependency, resolved.spec.runs_dir
    if given and "?" in given:
        raise UsageError(
            f"--dependency {quote_value(given)} joins jobs by `?` (or), but --after by `,` (and); "
            "write all of it in --dependency"
        )
    added = [f"afterany:{job}" for word in after for job in _jobs_of_target(word, runs_dir, "--after")]
    added += [f"afterok:{job}" for word in after_ok for job in _jobs_of_target(word, runs_dir, "--after-ok")]
    origin = "; ".join(filter(None, (given and resolved.origins["dependency"], "command line")))
    return resolved.replace(origin, dependency=",".join(filter(None, (given, *added))))


def _jobs_of_target(word: str, runs_dir: str, option: str) -> list[str]:
    """Return the job that a word names: an id, or a run's last job; of a sweep also each other unfinished array."""
    from slurmddp.runs import lookup
    from slurmddp.submission.sweep import active_tasks

    try:
        found = lookup.find([word], runs_dir)[0]
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error
    tasks = active_tasks(found.run, os.environ) if found.run and len(found.jobs) > 1 else ()
    waiting = {record["job"] for record, _ in tasks}
    return [job for job in found.jobs[:-1] if job in waiting] + [found.jobs[-1]]


def expand_sweep(request: Request, parameters: Mapping[str, Any]) -> Request:
    """Return the request with an array of one task per setting; unchanged without `--set`.

    Raises UsageError for a job of which no sweep can be made.
    """
    sets, zipped, at_once = parameters["sets"], parameters["zipped"], parameters["max_parallel"]
    if not sets:
        if zipped or at_once:
            raise UsageError("--zip and --max-parallel need a sweep; give --set KEY=VALUE,... too")
        return request
    job = request.resolved.spec
    if job.script:
        raise UsageError(
            f"{quote_value(job.script.path)} is a batch script; a sweep takes a training script, as in: --set lr=1,2 "
            "train.py --lr {lr}; or write #SBATCH --array=0-3 into the batch script, and submit that"
        )
    if job.launcher == "manual":
        raise UsageError("--launcher manual cannot run a sweep, whose jobs Slurm starts; give another --launcher")
    if job.reset:
        raise UsageError("--reset cannot be used for a sweep, where each setting is a run; choose another --name")
    from slurmddp.config.job_array import Array
    from slurmddp.submission import sweep_grid

    settings = sweep_grid.settings(sweep_grid.parse(sets), side_by_side=zipped)
    return structs.replace(request, array=Array(sweep_grid.tasks(job, settings), at_once))


def fill(resolved: Resolved) -> Request:
    """Return the job with the values of the cluster, and with the launcher's number of ranks.

    A rank has a GPU where the partition has GPUs. Nodes are left out that something speaks against. Prints those, and
    how the launcher's line was read. Raises UsageError when the job has another number of ranks.
    """
    from slurmddp.submission.bad_nodes import leave_out_bad_nodes

    request = requests.fill_from_cluster(resolved, os.environ)
    changed = with_ranks(request.resolved, computed=request.computed)
    if changed is not request.resolved:
        known = request.cluster
        request = requests.build_request(changed, known) if known else structs.replace(request, resolved=changed)
    spec = request.resolved.spec
    size = f"--gpus-per-node {spec.gpus_per_node}" if spec.gpus_per_node else f"--ntasks-per-node {spec.tasks_per_node}"
    print_reading(resolved, f"--nodes {spec.nodes} {size}")
    return leave_out_bad_nodes(request, print_message)


def name_run(request: Request) -> Request:
    """Return the request with the name of its run, as `submit` chooses it; unchanged where `submit` would refuse it."""
    if (Path(request.resolved.spec.runs_dir) / request.resolved.spec.job_name).exists():
        from slurmddp.submission.compatibility import choose_run

        with suppress(UsageError):
            return choose_run(request, os.environ, notice=print_message, ask=lambda _: None)
    return request


def with_ranks(resolved: Resolved, computed: Collection[str] = ()) -> Resolved:
    """Return the job with the number of ranks that COMMAND's launcher asks for; the options in `computed` are open.

    Raises UsageError when the job has another number of ranks.
    """
    spec, launch = resolved.spec, resolved.launch
    ranks = launch and launch.ranks_per_node
    if launch is None or ranks is None or ranks == spec.tasks_per_node:
        return resolved
    if spec.ntasks_per_node or (spec.gpus_per_node and "gpus-per-node" not in computed):
        own = count(spec.tasks_per_node, "rank")
        raise UsageError(f"the job has {own} on a node, but {launch.name} asks for {ranks}; give one of them")
    number = {"gpus_per_node": str(ranks)} if spec.gpus_per_node else {"ntasks_per_node": ranks}
    open_again = {JOB_FIELDS[key].name: JOB_FIELDS[key].default for key in computed}
    return resolved.replace(f"the options of {launch.name}", **open_again | number)


def print_reading(resolved: Resolved, meaning: str) -> None:
    """Print what the launcher that COMMAND begins with means here, and which of its options have no meaning."""
    if launch := resolved.launch:
        left_out = f"; left out: {' '.join(launch.left_out)}" if launch.left_out else ""
        print_message(f"slurmddp starts the ranks itself: {launch.name} is read as {meaning}{left_out}")
