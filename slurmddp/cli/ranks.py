"""`slurmddp stacks` and `slurmddp exec`: where the ranks of a running job stand, and a command beside one of them."""

import linecache
import os
import sys
from typing import Any, Final, NoReturn

import click

from slurmddp.cli.run_arguments import TEXT, complete_target, find_target, runs_dir_option
from slurmddp.cli.screen import print_message, print_result
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.monitoring.ranks import find_running_job
from slurmddp.slurm import client, commands
from slurmddp.text import quote_value
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
    answers = list(job.look(job.nodes, os.environ))
    silent = {node: why for node, _, why in answers if why}
    ranks: list[dict[str, Any]] = [one for _, several, _ in answers for one in several]
    if silent and not ranks:
        node, why = next(iter(silent.items()))
        raise ClusterError(job.explain_silence(node, why, job.words("look")))
    if not ranks:
        raise SlurmddpError(
            f"job {job.job_id} has no ranks at this moment: they have not begun, or have ended; a Python of a script "
            "becomes a rank where srun or a launcher starts it, as `srun python`"
        )
    missing = set(range(max(one["world_size"] for one in ranks))) - {one["rank"] for one in ranks}
    lost = {"host": "", "stack": None, "why_no_stack": _NOT_FOUND}
    groups = group_ranks([*ranks, *({"rank": rank, **lost} for rank in missing)], linecache.getline)
    known = [{"ranks": one.numbers, "hosts": one.hosts, "call": one.call, "place": one.place} for one in groups]
    own = [{name: value for name, value in one.items() if name != "job"} for one in ranks]
    about = {"job_id": job.job_id, "attempt": job.attempt, "silent_nodes": silent, "groups": known, "ranks": own}
    lines = [*format_groups(groups), *(format_stacks(groups, linecache.getline) if full else ())]
    print_result(about, lines, as_json=as_json)
    print_message(*(f"node {node} does not answer: {why}" for node, why in silent.items()))


@click.command()
@click.argument("target", type=TEXT, metavar="RUN|JOBID", shell_complete=complete_target)
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Beside this rank. [default: 0]")
@click.option("--node", type=TEXT, metavar="NAME", help="Beside the first rank of this node.")
@runs_dir_option
def exec(  # noqa: A001 - the name of the command
    target: str, *, command: tuple[str, ...], rank: int | None, node: str | None, runs_dir: str
) -> NoReturn:
    """Run COMMAND, or your shell, on the node of a rank, with its environment, GPUs and working folder.

    It is a step of the job beside the ranks (srun --overlap), and ends with the job. The exit status is that of
    COMMAND. Its words, from -- on, are given on as they are; for pipes and variables of the node: -- sh -c '...'.
    """
    if rank is not None and node is not None:
        raise UsageError("--rank cannot be combined with --node; give one of them")
    job = find_running_job(find_target(target, runs_dir), os.environ)
    if node not in (None, *job.nodes):
        raise UsageError(f"--node {quote_value(node)} is no node of job {job.job_id}; it has {', '.join(job.nodes)}")
    wanted = None if node else rank or 0
    words, silence, seen = list(command) or [os.environ.get("SHELL", "/bin/sh")], "", []
    for host, ranks, why in job.look([node] if node else job.nodes, os.environ):
        numbers = [one["rank"] for one in ranks]
        seen += numbers
        chosen = next((number for number in numbers if wanted in (None, number)), None)
        line = job.words("beside", str(wanted if chosen is None else chosen), *words)
        if chosen is not None:
            options = ("--pty",) if sys.stdin.isatty() and sys.stdout.isatty() else ()
            beside = commands.run_beside(job.number, host, *line, options=options)
            client.become(beside if job.number else line, os.environ)
        silence = silence or (why and job.explain_silence(host, why, line))
    if silence:
        raise ClusterError(silence)
    where = f"on {node}" if node else f"of number {wanted}"
    raise UsageError(f"job {job.job_id} has no rank {where}; it has {', '.join(map(str, sorted(seen))) or 'none yet'}")
