"""`slurmddp nodes`: show what speaks against which node, and forget it."""

import time
from collections.abc import Sequence
from pathlib import Path

import click

from slurmddp.cli.run_arguments import TEXT
from slurmddp.cli.screen import print_message, print_result, screen_width
from slurmddp.errors import UsageError
from slurmddp.runs import node_store
from slurmddp.runs.node_evidence import Suspect, find_suspects
from slurmddp.slurm.hostlist import expand
from slurmddp.text import format_duration, format_table, list_some, quote_value


@click.command()
@click.option("--forget", type=TEXT, multiple=True, metavar="NODE", help="Use a node again, as if new. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def nodes(forget: tuple[str, ...], *, as_json: bool) -> None:
    """Show what speaks against which node: from all runs of this user, with its age.

    The next start leaves out the nodes with a proof against them, or with two hints that have only the node in common:
    a new job, and a job that goes back into the queue. What speaks against a node is forgotten two hours after the last
    of it was seen. NODE may be a list, as in n[1-4].
    """
    now = time.time()
    if forget:
        _forget(expand(",".join(forget), option="--forget"))
    suspects = find_suspects(node_store.read_evidence(), now)
    found = [(one._asdict(), suspect.is_proved) for suspect in suspects for one in suspect.evidence]
    records = [{**one, "job_id": one.pop("job"), "left_out": is_proved} for one, is_proved in found]
    print_result({"nodes": records}, _format(suspects, now), as_json=as_json)
    if not (suspects or as_json):
        print_message("nothing speaks against a node")


def _forget(given: Sequence[str]) -> None:
    evidence = node_store.read_evidence()
    known = sorted({one.node for one in evidence})
    if unknown := [node for node in given if node not in known]:
        named = list_some(known, 9) or "no node"
        raise UsageError(f"--forget: nothing speaks against {quote_value(unknown[0])}; something does against {named}")
    node_store.replace(one for one in evidence if one.node not in given)


def _format(suspects: Sequence[Suspect], now: float) -> list[str]:
    """Return a table with a row for each thing that speaks against a node, the newest first, of which cluster."""
    several = len({one.cluster for suspect in suspects for one in suspect.evidence}) > 1
    rows = [
        (
            f"{one.cluster}:{suspect.node}" if several else suspect.node,
            "left out" if suspect.is_proved else "used",
            *(f"{format_duration(max(0.0, now - one.time))} ago", Path(one.run).name, one.job),
            f"{one.what} ({one.strength})",
        )
        for suspect in suspects
        for one in reversed(suspect.evidence)
    ]
    return format_table(rows, head=("NODE", "NEXT START", "SEEN", "RUN", "JOB", "EVIDENCE"), width=screen_width())
