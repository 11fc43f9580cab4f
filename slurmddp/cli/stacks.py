"""`slurmddp stacks`: show where each rank of a running job stands in its program."""

import linecache
import os
from typing import Any, Final

import click

from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import TEXT, complete_target, find_target, runs_dir_option
from slurmddp.cli.screen import print_result
from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.monitoring.ranks import LIMIT_S, explain_silence, find_running_job
from slurmddp.watchdog.nodes import look_at_nodes
from slurmddp.watchdog.stack_groups import format_groups, format_stacks, group_ranks

_NOT_FOUND: Final = "it has no process: not begun, ended, or its node does not answer"


@click.command()
@click.argument("target", type=TEXT, metavar="[RUN|JOBID]", required=False, shell_complete=complete_target)
@runs_dir_option
@click.option("--full", is_flag=True, help="Show the whole stack of one rank of each group, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the groups, and the stacks of all ranks, as JSON.")
def stacks(target: str | None, *, runs_dir: str, full: bool, as_json: bool) -> None:
    """Show where the ranks of a running job stand, in groups, the smallest first: which one is elsewhere.

    The default is the run that was submitted last. Each line has the ranks, their nodes, the function that the program
    has called, and the place of the call. The training goes on meanwhile; a rank that hangs shows its place, too. It
    takes a short step beside the ranks on each node (srun --overlap).
    """
    job = find_running_job(find_target(target, runs_dir), os.environ)
    answers = list(look_at_nodes(job.number, job.nodes, job.words("look"), os.environ, limit_s=LIMIT_S))
    silent = {node: why for node, _, why in answers if why}
    ranks: list[dict[str, Any]] = [one for _, several, _ in answers for one in several]
    if silent and not ranks:
        node, why = next(iter(silent.items()))
        raise ClusterError(explain_silence(job, node, why, job.words("look")))
    if not ranks:
        raise SlurmddpError(f"job {job.job_id} has no ranks at this moment: they have not begun, or have ended")
    missing = set(range(max(one["world_size"] for one in ranks))) - {one["rank"] for one in ranks}
    lost = {"host": "", "stack": None, "why_no_stack": _NOT_FOUND}
    groups = group_ranks([*ranks, *({"rank": rank, **lost} for rank in missing)], linecache.getline)
    known = [{"ranks": one.numbers, "hosts": one.hosts, "call": one.call, "place": one.place} for one in groups]
    own = [{name: value for name, value in one.items() if name != "job"} for one in ranks]
    about = {"job_id": job.job_id, "attempt": job.attempt, "silent_nodes": silent, "groups": known, "ranks": own}
    lines = [*format_groups(groups), *(format_stacks(groups, linecache.getline) if full else ())]
    print_result(about, lines, as_json=as_json)
    for node, why in silent.items():
        print_message(f"node {node} does not answer: {why}")
