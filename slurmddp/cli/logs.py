"""`slurmddp logs`: what a job prints, and has printed."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from slurmddp.cli.completion import complete_target
from slurmddp.cli.job_options import runs_dir_option, tell, write
from slurmddp.errors import UsageError
from slurmddp.monitoring import follow as following
from slurmddp.monitoring.logs.merge import ALL, ATTEMPT, LAST, Line, Selection, last, lines
from slurmddp.monitoring.logs.select_files import job_of, next_job
from slurmddp.monitoring.status import look
from slurmddp.runs.lookup import Target
from slurmddp.text import clean, printable

if TYPE_CHECKING:
    from slurmddp.monitoring.logs.error_lines import Errors

_BLOCK_BYTES: Final = 2**16

Form = Callable[[Line], bytes]


@click.command()
@click.argument("target", metavar="[RUN|ID]", required=False, shell_complete=complete_target)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Show what comes, through restarts and requeues, to the end of the job, or of the RUN's last one.",
)
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
    tail = None if tail is None else min(tail, sys.maxsize)
    run, job_id = job_of(target, runs_dir)
    looks = _errors() if errors else None
    wanted = Selection(
        run=run,
        job_id=job_id,
        ranks=frozenset(ranks) if ranks else None if everything or errors else frozenset({0}),
        batch=not ranks,
        chosen=looks.is_one if looks else None,
        attempt=_attempt(attempt, follow=follow),
    )
    show = _Show(_form(wanted, follow=follow, errors=errors, as_json=as_json), looks)
    if follow:
        _follow(wanted, tail, show)
        while job_id := next_job(target, run, job_id):
            tell(f"the run goes on in job {job_id}")
            wanted = replace(wanted, job_id=job_id)
            show.form = _form(wanted, follow=follow, errors=errors, as_json=as_json)
            _follow(wanted, None, show)
        return
    if not show.all(_existing(wanted, tail), tail):
        what = "nothing that looks like an error" if errors else "nothing yet"
        tell(f"job {job_id} has printed {what}; `slurmddp logs -f {job_id}` waits for more")
    elif everything and not as_json:
        _tell_order(show)


def _attempt(text: str, *, follow: bool) -> str:
    if text not in (LAST, ALL) and not ATTEMPT.fullmatch(text):
        raise UsageError(f"--attempt {text!a} is none; give {LAST}, {ALL}, or one as 0.0")
    if follow and text not in (LAST, ALL):
        raise UsageError("--follow goes on from the newest attempt; leave --attempt out, or give --attempt all")
    return text


def _errors() -> "Errors":
    from slurmddp.monitoring.logs.error_lines import Errors

    return Errors()


class _Show:
    """Writes lines to standard output, many at a time."""

    def __init__(self, form: Form, errors: "Errors | None") -> None:
        self.form = form
        self.errors = errors
        """What chooses among lines that come; those that there were are chosen as they are read."""
        self._unended: Path | None = None
        self.told: dict[Path, bool] = {}
        """Of each file that lines came from, whether one of them told its time."""

    def all(self, found: Iterable[Line], tail: int | None = None) -> bool:
        """Write lines, or the last ones; tell whether there were any."""
        block, size, some = [], 0, False
        for line in last(found, tail):
            some = True
            if line.source.rank is not None:
                self.told[line.source.path] = self.told.get(line.source.path, False) or line.told == "line"
            block.append(self._text(line))
            size += len(block[-1])
            if size > _BLOCK_BYTES:
                write(sys.stdout, b"".join(block))
                block, size = [], 0
        write(sys.stdout, b"".join(block))
        return some

    def _text(self, line: Line) -> bytes:
        """Return what is written for a line, on a line of its own where another file's last one has no end."""
        text = self.form(line)
        follows = self._unended not in (None, line.source.path)
        self._unended = None if text.endswith((b"\n", b"\r")) else line.source.path
        return b"\n" + text if follows else text

    def one(self, line: Line) -> None:
        """Write a line at once, if it is chosen."""
        if self.errors is None or self.errors.is_one(line.source.path, line.text):
            self.all([line])


def _existing(wanted: Selection, tail: int | None) -> Iterator[Line]:
    """Return the lines to choose the last ones from: the last errors may lie anywhere."""
    return lines(wanted, None if wanted.chosen else tail)


def _tell_order(show: _Show) -> None:
    silent = sum(not told for told in show.told.values())
    if silent and len(show.told) > 1:
        tell(
            f"{silent} of {len(show.told)} ranks print no times: their lines stand at the beginning of the attempt, "
            "rank by rank"
        )


def _follow(wanted: Selection, tail: int | None, show: _Show) -> None:
    output = following.Output(wanted.run, wanted.job_id, wanted.ranks, wanted.batch)
    ends = output.skip(wanted.attempts())
    show.all(_existing(replace(wanted, ends=ends), tail), tail)
    if output.status is not None and (state := _ended(wanted)):
        tell(f"job {wanted.job_id} is {state}")
        return
    try:
        following.attend(output, os.environ, show=show.one, notice=tell)
    except KeyboardInterrupt:
        tell(f"job {wanted.job_id} goes on without you; `slurmddp logs -f {wanted.job_id}` comes back to it")
        raise


def _ended(wanted: Selection) -> str:
    """Return how a job has ended that Slurm no longer knows, or whose number is another's; empty when it may go on."""
    (found, *_) = look([Target(wanted.run, (wanted.job_id,))], os.environ)
    is_known = found.source != "files" or found.silence
    return "" if is_known or found.phase == "unknown" else found.state


def _form(wanted: Selection, *, follow: bool, errors: bool, as_json: bool) -> Form:
    """Return the function that makes of a line what is written."""
    if as_json:
        return _json(wanted)
    if errors:
        return _with_place
    several = wanted.ranks is None or len(wanted.ranks) > 1
    if several:
        return partial(_with_label, attempts=follow or wanted.attempt == ALL)
    return _clean if sys.stdout.isatty() else _raw


def _raw(line: Line) -> bytes:
    return line.text


def _clean(line: Line) -> bytes:
    return clean(line.text).encode() + b"\n"


def _with_label(line: Line, *, attempts: bool) -> bytes:
    source = line.source
    words = (line.attempt if attempts else "", source.label, source.host)
    return _prefixed(" ".join(filter(None, words)), line.text)


def _with_place(line: Line) -> bytes:
    source = line.source
    place = f"{_short(source.path)}:{line.number}" if line.number else _short(source.path)
    return _prefixed(f"{place}: {' on '.join(filter(None, (source.label, source.host)))}", line.text)


def _prefixed(words: str, text: bytes) -> bytes:
    if sys.stdout.isatty():
        return f"{printable(words)} | {clean(text)}\n".encode()
    return os.fsencode(words) + b" | " + text.rstrip(b"\r\n") + b"\n"


def _short(path: Path) -> str:
    """Return a path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _json(wanted: Selection) -> Form:
    def form(line: Line) -> bytes:
        source = line.source
        record = {
            "time": line.time,
            "told": line.told or None,
            "job": wanted.job_id,
            "attempt": line.attempt,
            "source": source.kind,
            "rank": source.rank,
            "host": source.host or None,
            "file": str(source.path),
            "line": line.number or None,
            "text": line.text.decode("utf-8", "replace").rstrip("\r\n"),
        }
        return json.dumps(record).encode() + b"\n"

    return form
