"""`slurmddp logs`: what a job prints, and has printed."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click

from slurmddp import follow as following
from slurmddp.cli.options import runs_dir_option, tell, write
from slurmddp.errors import UsageError
from slurmddp.logs.errors import wrong
from slurmddp.logs.listing import ALL, ATTEMPT, LAST, Line, Selection, last, lines
from slurmddp.logs.which import job_of
from slurmddp.terminal import clean, printable

_BLOCK_BYTES: Final = 2**16

Form = Callable[[Line], bytes]


@click.command()
@click.argument("target", metavar="[RUN|ID]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Show what comes, through restarts and requeues, to the job's end.")
@click.option("--rank", "ranks", type=click.IntRange(min=0), multiple=True, metavar="N", help="That rank. Repeatable.")
@click.option("--all", "everything", is_flag=True, help="All ranks, merged by time, each line with rank and host.")
@click.option("--errors", is_flag=True, help="Only lines that look like errors, of all ranks, with file and line.")
@click.option(
    "--attempt", default=LAST, metavar="N", help="That start of the ranks, as 0.0; last; or all. [default: last]"
)
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print each line as a line of JSON.")
def logs(  # noqa: PLR0913 - an argument for each option
    target: str | None,
    *,
    follow: bool,
    ranks: tuple[int, ...],
    everything: bool,
    errors: bool,
    attempt: str,
    tail: int | None,
    runs_dir: str,
    as_json: bool,
) -> None:
    """Show a job's output: rank 0's and the batch script's words, of the newest attempt.

    Of a RUN it is the newest job that has printed something; without a word, of the run that was submitted last. A
    task of an array is named as 17_3. On a terminal what could move the cursor is left out; elsewhere lines pass as
    they are.
    """
    if ranks and everything:
        raise UsageError("--rank and --all exclude each other; give one of them")
    run, job_id = job_of(target, runs_dir)
    wanted = Selection(
        run=run,
        job_id=job_id,
        ranks=frozenset(ranks) if ranks else None if everything or errors else frozenset({0}),
        batch=not ranks,
        attempt=_attempt(attempt, follow=follow),
    )
    show = _Show(_form(wanted, errors=errors, as_json=as_json, follow=follow), errors=errors)
    if follow:
        _follow(wanted, tail, show)
    elif not _list(wanted, tail, show):
        tell(f"job {job_id} has printed nothing yet; `slurmddp logs -f {job_id}` waits for it")


def _attempt(text: str, *, follow: bool) -> str:
    if text not in (LAST, ALL) and not ATTEMPT.fullmatch(text):
        raise UsageError(f"--attempt {text!a} is none; give {LAST}, {ALL}, or one as 0.0")
    if follow and text not in (LAST, ALL):
        raise UsageError("--follow goes on from the newest attempt; leave --attempt out, or give --attempt all")
    return text


class _Show:
    """Writes lines to standard output, many at a time."""

    def __init__(self, form: Form, *, errors: bool) -> None:
        self._form = form
        self._chosen: Callable[[Iterable[Line]], Iterator[Line]] = wrong if errors else iter

    def all(self, found: Iterable[Line], tail: int | None = None) -> bool:
        """Write lines, or the last ones; tell whether there were any."""
        block, size, some = [], 0, False
        for line in last(self._chosen(found), tail):
            some = True
            block.append(self._form(line))
            size += len(block[-1])
            if size > _BLOCK_BYTES:
                write(sys.stdout, b"".join(block))
                block, size = [], 0
        write(sys.stdout, b"".join(block))
        return some


def _list(wanted: Selection, tail: int | None, show: _Show) -> bool:
    return show.all(lines(wanted, tail))


def _follow(wanted: Selection, tail: int | None, show: _Show) -> None:
    output = following.Output(wanted.run, wanted.job_id, wanted.ranks, wanted.batch)
    ...


def _form(wanted: Selection, *, errors: bool, as_json: bool, follow: bool) -> Form:
    ...
