"""`slurmddp sandbox`: start a real Slurm on this machine, and cause faults in it."""

import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click

from slurmddp import sandbox as sandboxes
from slurmddp.cli.screen import print_result
from slurmddp.errors import ClusterError
from slurmddp.text import format_table

_DEFAULT = sandboxes.Plan()

_new_name = click.option("--name", default=_DEFAULT.name, show_default=True, help="Name of the sandbox.")
_name = click.option(
    "--name",
    default=sandboxes.current_name,
    show_default="that of SLURM_CONF, else default",
    help="Name of the sandbox.",
)


@click.group()
def sandbox() -> None:
    """Run a real Slurm on this machine, as root or as an ordinary user.

    It runs in its own namespaces, isolated from the rest of the machine and from other sandboxes.
    """


def _number(option: str, name: str, unit: str, help_text: str) -> Callable[[Any], Any]:
    """Return the option for a number of a plan."""
    default = getattr(_DEFAULT, name)
    return click.option(option, name, type=int, default=default, show_default=True, metavar=unit, help=help_text)


@sandbox.command()
@_new_name
@_number("--nodes", "nodes", "N", "Number of nodes.")
@_number("--gpus-per-node", "gpus_per_node", "N", "GPUs that each node has according to Slurm.")
@_number("--cpus-per-node", "cpus_per_node", "N", "CPUs that each node has according to Slurm.")
@_number("--memory-per-node", "memory_per_node", "MB", "Memory that each node has according to Slurm.")
@_number("--kill-wait", "kill_wait_s", "SECONDS", "Time from SIGTERM to SIGKILL; many sites use 30.")
@_number(
    *("--slurmd-timeout", "slurmd_timeout_s", "SECONDS"),
    "Time after which Slurm marks a node that does not answer as DOWN; many sites use 60.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="NAME:KEY=X,...",
    help="Add a partition. Keys are nodes, cpus, gpus, memory, and those of slurm.conf(5). Repeatable.",
)
@click.option(
    "--slurm-conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A line of slurm.conf(5) instead of the sandbox's own, as in SelectType=select/linear. Repeatable.",
)
@click.option(
    "--etc",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Copy a file beside slurm.conf, for example topology.conf or job_submit.lua. Repeatable.",
)
@click.option("--accounting", is_flag=True, help="Start slurmdbd and MariaDB too, so that sacct works.")
def up(partitions: tuple[str, ...], **options: Any) -> None:
    """Start a sandbox; return when all nodes are idle.

    All nodes are in six partitions:

    \b
    gpu      the default; no job preempts its jobs
    low      jobs of gpu, high, short preempt its jobs after 10 s of grace time
    nograce  as low, without grace time
    cancel   as low, but its jobs are cancelled, not requeued
    high     as gpu, but its jobs start before those of gpu and short
    short    as gpu, with a time limit of 10 minutes

    --partition adds a partition with its own nodes, as in
    --partition big:nodes=2,cpus=40,gpus=a100:8,MaxTime=1:00:00. With --nodes 0 only these exist.
    """  # noqa: D301 click marks lines that stay as they are by this character
    plan = sandboxes.Plan(partitions=tuple(map(sandboxes.Shape.parse, partitions)), **options)
    sandboxes.up(plan, say=lambda part: click.echo(f"starting {part}", err=True))
    click.echo(f"sandbox '{plan.name}' is up. To use it from this shell, type:", err=True)
    click.echo(f'  eval "$(slurmddp sandbox env{_name_words(plan.name, sandboxes.current_name())})"', err=True)


@sandbox.command()
@_name
def down(name: str) -> None:
    """Stop a sandbox and remove its files."""
    is_used = "SLURM_CONF" in os.environ and sandboxes.current_name() == name
    was_up = sandboxes.down(name)
    click.echo(f"sandbox '{name}' is down" if was_up else f"sandbox '{name}' was not up", err=True)
    if is_used:
        click.echo("this shell still uses it; type: unset SLURM_CONF", err=True)


@sandbox.command(short_help="Print the variables that let a shell use a sandbox.")
@_name
def env(name: str) -> None:
    """Print the variables that let a shell use a sandbox: eval "$(slurmddp sandbox env)"."""
    for key, value in _running(name).environment().items():
        click.echo(f"export {key}={shlex.quote(value)}")


@sandbox.command(short_help="Show what runs in a sandbox, and where its logs are.")
@_name
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def status(name: str, *, as_json: bool) -> int:
    """Show whether a sandbox is up, what runs in it, and where its logs are; exit with 1 if it is not up."""
    report = sandboxes.report(name)
    print_result(report, _format_report(report) if report["up"] else [_explain_not_up(name)], as_json=as_json)
    return 0 if report["up"] else 1


def _format_report(report: Mapping[str, Any]) -> list[str]:
    """Return the report of a sandbox that is up as a table for people."""
    rows = [tuple(part.values()) for part in report["daemons"] + report["nodes"]]
    others = [f"other sandboxes: {' '.join(report['others'])}"] if report["others"] else []
    table = format_table(rows, head=("NAME", "STATE", "LOG"))
    return [f"sandbox '{report['name']}' is up in {report['folder']}", *others, *table]


def _add_node_command(command: str, method: Any, state: str, help_text: str) -> None:
    """Add a command for one node, which has this state afterwards."""

    @sandbox.command(command, help=help_text)
    @_name
    @click.argument("node")
    def perform(name: str, node: str) -> None:
        method(_running(name), node)
        click.echo(f"{node} is {state}", err=True)


_add_node_command("kill", sandboxes.Sandbox.kill, "off", "Switch NODE off: all its processes end at once.")
_add_node_command("boot", sandboxes.Sandbox.boot, "on", "Switch NODE on again; return when Slurm can use it.")
_add_node_command("cut", sandboxes.Sandbox.disconnect, "cut off", "Cut NODE off from the network; its processes go on.")
_add_node_command("heal", sandboxes.Sandbox.reconnect, "connected", "Connect NODE again; return when Slurm can use it.")


@sandbox.command(short_help="Let a job of higher priority preempt a running job.")
@_name
@click.argument("word", metavar="[JOBID|RUN]", required=False)
def preempt(name: str, word: str | None) -> None:
    """Preempt a job by one of higher priority; return when Slurm has begun to preempt it.

    Without a name it is the job of the run that was submitted last. The other job ends as soon as it has the nodes,
    and preempts all jobs that it finds there. Jobs can be preempted in the partitions low (10 s of grace time),
    nograce, and cancel (Slurm does not requeue the job).
    """
    from slurmddp.cli.run_arguments import default_runs_dir, find_target
    from slurmddp.runs.lookup import require_one

    job_id = require_one(find_target(word, default_runs_dir()), word or "").jobs[-1]
    _running(name).preempt(job_id)
    click.echo(f"job {job_id} is preempted", err=True)


def _running(name: str) -> sandboxes.Sandbox:
    """Return a sandbox that is up. Raises ClusterError if it is not."""
    if running := sandboxes.find(name):
        return running
    raise ClusterError(_explain_not_up(name))


def _explain_not_up(name: str) -> str:
    return f"sandbox '{name}' is not up; start it with: slurmddp sandbox up{_name_words(name, _DEFAULT.name)}"


def _name_words(name: str, default: str) -> str:
    return "" if name == default else f" --name {shlex.quote(name)}"
