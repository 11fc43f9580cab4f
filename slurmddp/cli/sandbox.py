"""`slurmddp sandbox`: a real Slurm on this machine."""

import json
import shlex
from dataclasses import asdict
from typing import Any

import click

from slurmddp import sandbox as room
from slurmddp.errors import ClusterError

_DEFAULT = room.Plan()

_name = click.option("--name", default=_DEFAULT.name, show_default=True, help="Which sandbox.")


@click.group()
def sandbox() -> None:
    """Run a real Slurm on this machine, as root or as an ordinary user.

    It lives in namespaces of its own: nothing else on the machine sees or touches it, other sandboxes neither.
    """


@sandbox.command()
@_name
@click.option("--nodes", type=int, default=_DEFAULT.nodes, show_default=True, help="How many nodes.")
@click.option(
    "--gpus-per-node", type=int, default=_DEFAULT.gpus_per_node, show_default=True, help="GPUs a node claims."
)
@click.option(
    "--cpus-per-node", type=int, default=_DEFAULT.cpus_per_node, show_default=True, help="CPUs a node claims."
)
@click.option(
    "--memory-per-node",
    type=int,
    default=_DEFAULT.memory_per_node,
    show_default=True,
    metavar="MB",
    help="Memory a node claims.",
)
@click.option(
    "--kill-wait",
    "kill_wait_s",
    type=int,
    default=_DEFAULT.kill_wait_s,
    show_default=True,
    metavar="SECONDS",
    help="From SIGTERM to SIGKILL; sites often have 30.",
)
@click.option(
    "--slurmd-timeout",
    "slurmd_timeout_s",
    type=int,
    default=_DEFAULT.slurmd_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="How long a silent node is not yet down; sites often have 60.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="NAME:KEY=X,...",
    help="One more partition; repeatable. Keys are nodes, cpus, gpus, memory, and those of slurm.conf(5).",
)
@click.option("--memory-limits", is_flag=True, help="A job that takes more memory than it asked for (--mem) is killed.")
@click.option("--accounting", is_flag=True, help="With slurmdbd and MariaDB, so that sacct answers.")
def up(partitions: tuple[str, ...], **options: Any) -> None:
    """Bring a sandbox up; ends when all nodes are idle.

    All nodes are in six partitions: gpu, low, nograce, cancel, high, short. --partition makes more, with nodes of their
    own, as in --partition big:nodes=2,cpus=40,gpus=a100:8,MaxTime=1:00:00; with --nodes 0 there are those alone.
    """
    plan = room.Plan(partitions=tuple(map(room.Shape.parse, partitions)), **options)
    room.up(plan, say=lambda part: click.echo(f"starting {part}", err=True))
    click.echo(f"sandbox '{plan.name}' is up. Point this shell at it with:", err=True)
    click.echo(f'  eval "$(slurmddp sandbox env{_name_words(plan.name)})"', err=True)


@sandbox.command()
@_name
def down(name: str) -> None:
    """End a sandbox and remove everything of it."""
    was_up = room.down(name)
    click.echo(f"sandbox '{name}' is down" if was_up else f"sandbox '{name}' was not up", err=True)


@sandbox.command(short_help="Print the variables that point a shell at a sandbox.")
@_name
def env(name: str) -> None:
    """Print what points a shell at a sandbox: eval "$(slurmddp sandbox env)"."""
    for key, value in _running(name).environment().items():
        click.echo(f"export {key}={shlex.quote(value)}")


@sandbox.command(short_help="Say what runs in a sandbox and where its logs are.")
@_name
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def status(context: click.Context, name: str, *, as_json: bool) -> None:
    """Say whether a sandbox is up, what runs in it, and where its logs are; exit status 1 when it is not up."""
    report = room.report(name)
    click.echo(json.dumps(asdict(report)) if as_json else report.text())
    context.exit(0 if report.up else 1)


@sandbox.command()
@_name
@click.argument("node")
def kill(name: str, node: str) -> None:
    """Take NODE's power: all its processes are gone at once."""
    _running(name).kill(node)
    click.echo(f"{node} is off", err=True)


@sandbox.command()
@_name
@click.argument("node")
def boot(name: str, node: str) -> None:
    """Switch NODE on again; ends when Slurm can use it."""
    _running(name).boot(node)
    click.echo(f"{node} is on", err=True)


@sandbox.command(short_help="Pull NODE's cable out: its processes live on.")
@_name
@click.argument("node")
def cut(name: str, node: str) -> None:
    """Pull NODE's cable out: its processes live on, and nobody hears from them."""
    _running(name).cut(node)
    click.echo(f"{node} is cut off", err=True)


@sandbox.command(short_help="Plug NODE's cable in again.")
@_name
@click.argument("node")
def heal(name: str, node: str) -> None:
    """Plug NODE's cable in again; ends when Slurm can use it."""
    _running(name).heal(node)
    click.echo(f"{node} is plugged in", err=True)


@sandbox.command(short_help="Let a more urgent job take a running job's nodes.")
@_name
@click.argument("job_id", metavar="JOBID")
def preempt(name: str, job_id: str) -> None:
    """Let a more urgent job take the nodes of JOBID; ends when Slurm has begun to preempt it.

    The urgent job ends as soon as it has the nodes. Partitions low (10 s of grace), nograce and cancel (never
    requeued by Slurm) can be preempted.
    """
    _running(name).preempt(job_id)
    click.echo(f"job {job_id} is preempted", err=True)


def _running(name: str) -> room.Sandbox:
    if running := room.find(name):
        return running
    raise ClusterError(f"sandbox '{name}' is not up; start it with: slurmddp sandbox up{_name_words(name)}")


def _name_words(name: str) -> str:
    return "" if name == _DEFAULT.name else f" --name {shlex.quote(name)}"
