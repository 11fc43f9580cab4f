"""`slurmddp exec`: run a command beside a rank of a running job."""

import os
import sys
from typing import NoReturn

import click

from slurmddp.cli.run_arguments import TEXT, complete_target, find_target, runs_dir_option
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.ranks import LIMIT_S, explain_silence, find_running_job
from slurmddp.slurm import client, commands
from slurmddp.text import quote_value
from slurmddp.watchdog.nodes import look_at_nodes


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
    nodes = [node] if node else job.nodes
    for host, ranks, why in look_at_nodes(job.number, nodes, job.words("look"), os.environ, limit_s=LIMIT_S):
        numbers = [one["rank"] for one in ranks]
        seen += numbers
        chosen = next((number for number in numbers if wanted in (None, number)), None)
        line = job.words("beside", str(wanted if chosen is None else chosen), *words)
        if chosen is not None:
            pty = sys.stdin.isatty() and sys.stdout.isatty()
            client.become(commands.exec_beside(job.number, host, *line, pty=pty) if job.number else line, os.environ)
        silence = silence or (why and explain_silence(job, host, why, line))
    if silence:
        raise ClusterError(silence)
    where = f"on {node}" if node else f"of number {wanted}"
    raise UsageError(f"job {job.job_id} has no rank {where}; it has {', '.join(map(str, sorted(seen))) or 'none yet'}")
