"""`slurmddp logs`: show the output of a job."""

import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import click

from slurmddp.cli.run_arguments import TEXT, complete_target, find_target, name_task, runs_dir_option
from slurmddp.cli.screen import JSON_SCHEMA, print_message, write_bytes
from slurmddp.errors import UsageError
from slurmddp.monitoring import follow as following
from slurmddp.monitoring.logs.merge import ALL, ATTEMPT, LAST, Line, Selection, lines
from slurmddp.monitoring.status import last_submission, query_jobs
from slurmddp.runs import lookup
from slurmddp.runs.history import read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import relative_path
from slurmddp.runs.lookup import Target
from slurmddp.slurm.job_info import JobRef, is_job_id
from slurmddp.text import clean_line, escape_text

_BLOCK_LINES: Final = 1000

Form = Literal["plain", "labelled", "placed", "json"]
"""How a line is written: as it is, behind rank and host, behind its file, too, or as JSON."""


@click.command()
@click.argument("target", type=TEXT, metavar="[RUN|ID]", required=False, shell_complete=complete_target)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Show new output, through restarts and requeues, until the job, or the last job of the RUN, ends.",
)
@click.option(
    "--rank", "ranks", type=click.IntRange(min=0), multiple=True, metavar="N", help="Show this rank. Repeatable."
)
@click.option("--all", "everything", is_flag=True, help="Show all ranks, merged by time, each line with rank and host.")
@click.option("--errors", is_flag=True, help="Show only lines that look like errors, of all ranks, with file and line.")
@click.option(
    "--attempt",
    default=LAST,
    metavar="N",
    help="Show this start of the ranks, as in 0.0; or last, or all. [default: last]",
)
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Show only the last N lines.")
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
    """Show a job's output: of rank 0 and the batch script, in the newest attempt.

    RUN means its newest job that has output; the default is the run that was submitted last. A task of an array is
    named as in 17_3. On a terminal, control characters are left out; otherwise the output is unchanged.
    """
    if ranks and everything:
        raise UsageError("--rank cannot be combined with --all; give one of them")
    tail = None if tail is None else min(tail, sys.maxsize)
    found = lookup.require_one(find_target(target, runs_dir), target or "")
    if found.run is None:
        where = f"its output is in the file that `scontrol show job {found.name}` names; {name_task(found.name)}"
        raise UsageError(f"job {found.name} is of no run in {runs_dir}; {where}")
    run, job_id = found.run, newest_with_output(found.run, found.jobs)
    if errors:
        from slurmddp.monitoring.logs.error_lines import Errors  # it loads the rules of `diagnose`
    wanted = Selection(
        run=run,
        job_id=job_id,
        ranks=frozenset(ranks) if ranks else None if everything or errors else frozenset({0}),
        batch=not ranks,
        chosen=Errors().is_one if errors else None,
        failed_first=errors and tail is None,
        attempt=_check_attempt(attempt, follow=follow),
    )
    form: Form = (
        "json" if as_json else "placed" if errors else "labelled" if everything or len({*ranks}) > 1 else "plain"
    )
    writer = _LineWriter(job_id, form, has_attempts=follow or attempt == ALL)
    if follow:
        _follow(wanted, tail, writer)
        while job_id := next_job(target, run, job_id):
            print_message(f"the run continues in job {job_id}")
            wanted, writer.job_id = replace(wanted, job_id=job_id), job_id
            _follow(wanted, None, writer)
        return
    decisive = errors and tail is None and not (ranks or as_json)
    if not writer.write_all(_find_decisive(wanted) if decisive else lines(wanted, None if errors else tail), tail):
        print_message(_explain_none(wanted, errors=errors))


def _find_decisive(wanted: Selection) -> Iterable[Line]:
    """Return the lines that matter, if the diagnosis of the newest attempt has a cause; else all."""
    from slurmddp.diagnose.diagnosis import diagnose_attempt
    from slurmddp.diagnose.rule_types import UNKNOWN
    from slurmddp.monitoring.logs.error_lines import keep_decisive

    run, events = wanted.run, read_outline(wanted.run).of_job(wanted.job_id).supervision
    names = wanted.attempts() if wanted.attempt == LAST else []
    told = [diagnose_attempt(run, wanted.job_id, name, events) for name in names]
    evidence = {(line.file, line.number) for one in told if one.cause != UNKNOWN for line in one.evidence}
    kept, left = keep_decisive(lines(wanted), evidence) if evidence else (lines(wanted), 0)
    if left:
        name = f"{run.sweep.path.name}/{run.path.name}" if run.sweep else run.path.name
        print_message(f"{left} more lines look like errors; type: slurmddp logs {name} --errors -n 100")
    return kept


def _explain_none(wanted: Selection, *, errors: bool) -> str:
    run, job_id = wanted.run, wanted.job_id
    asked = [] if wanted.batch else sorted(wanted.ranks or ())
    whose = f"rank {', '.join(map(str, asked))} of job {job_id}" if asked else f"job {job_id}"
    what = "no line that looks like an error" if errors else f"no output in {relative_path(run.logs)}"
    (job, *_) = query_jobs([Target(run, (job_id,))], os.environ)
    if job.outcome.final:
        is_part = wanted.attempt == LAST and len(run.attempts(job_id)) > 1
        return f"{whose}, which is {job.state}, has {what}" + " in its newest attempt; try --attempt all" * is_part
    typed = "".join(f" --rank {rank}" for rank in asked)
    return f"{whose} has {what} yet; to wait for more, type: slurmddp logs -f {job_id}{typed}"


def _check_attempt(text: str, *, follow: bool) -> str:
    if text not in (LAST, ALL) and not ATTEMPT.fullmatch(text):
        raise UsageError(f"--attempt {text!a} is not an attempt; give {LAST}, {ALL}, or one as in 0.0")
    if follow and text not in (LAST, ALL):
        raise UsageError("--follow continues from the newest attempt; leave --attempt out, or give --attempt all")
    return text


@dataclass
class _LineWriter:
    """Writes lines of a job to standard output, in blocks."""

    job_id: str
    form: Form
    has_attempts: bool
    """Whether labels have the attempt."""
    _unended: Path | None = None

    def write_all(self, found: Iterable[Line], tail: int | None = None) -> bool:
        """Write lines, or the last `tail` ones; return whether there were any."""
        left, any_line = iter(found if tail is None else deque(found, maxlen=tail)), False
        while block := list(islice(left, _BLOCK_LINES)):
            write_bytes(sys.stdout, b"".join(map(self._format, block)))
            any_line = True
        return any_line

    def _format(self, line: Line) -> bytes:
        """Return the bytes to write; they begin with a line end if the last line of another file had none."""
        text = self._as_json(line) if self.form == "json" else self._as_text(line)
        follows = self._unended not in (None, line.source.path)
        self._unended = None if text.endswith((b"\n", b"\r")) else line.source.path
        return b"\n" + text if follows else text

    def _as_text(self, line: Line) -> bytes:
        """Return a line, behind its rank and host if it is labelled, or behind its file, too."""
        source, is_terminal = line.source, sys.stdout.isatty()
        if self.form == "plain":
            return clean_line(line.text).encode() + b"\n" if is_terminal else line.text
        if self.form == "placed":
            number = f":{line.number}" if line.number else ""
            words = f"{relative_path(source.path)}{number}: {' on '.join(filter(None, (source.label, source.host)))}"
        else:
            words = " ".join(filter(None, (line.attempt * self.has_attempts, source.label, source.host)))
        if is_terminal:
            return f"{escape_text(words)} | {clean_line(line.text)}\n".encode()
        return os.fsencode(words) + b" | " + line.text.rstrip(b"\r\n") + b"\n"

    def _as_json(self, line: Line) -> bytes:
        source = line.source
        record = {
            "schema": JSON_SCHEMA,
            "time": line.time,
            "told": line.told or None,
            "job_id": self.job_id,
            "attempt": line.attempt,
            "source": source.kind,
            "rank": source.rank,
            "host": source.host or None,
            "file": str(source.path),
            "line": line.number or None,
            "text": line.text.decode("utf-8", "replace").rstrip("\r\n"),
        }
        return json.dumps(record).encode() + b"\n"


def _follow(wanted: Selection, tail: int | None, writer: _LineWriter) -> None:
    def write(line: Line) -> None:
        if wanted.chosen is None or wanted.chosen(line.source.path, line.text):
            writer.write_all([line])

    output = following.Output(wanted.run, wanted.job_id, wanted.ranks, wanted.batch)
    ends = output.skip_existing(wanted.attempts())
    writer.write_all(lines(replace(wanted, ends=ends), None if wanted.chosen else tail), tail)
    try:
        following.Follower(output, os.environ, write, print_message).follow()
    except KeyboardInterrupt:
        print_message(f"job {wanted.job_id} continues; to follow it again, type: slurmddp logs -f {wanted.job_id}")
        raise


def next_job(word: str | None, run: RunDir, job_id: str) -> str:
    """Return the run's next job after this one; empty when there is none, or when the word names this job alone."""
    if word and is_job_id(word):
        return ""
    later = iter(lookup.find_all_jobs(run).jobs)
    return next(later, "") if job_id in later else ""


def newest_with_output(run: RunDir, jobs: Sequence[str]) -> str:
    """Return the newest job that has printed something, else that of the last submission which starts first.

    Raises UsageError when it is a whole array.
    """
    for job_id in reversed(jobs):
        refs = [JobRef.parse(path.stem) for path in run.logs.glob(f"{job_id}_*.out")]
        if tasks := [task for task in refs if task.is_task]:
            last = max(tasks, key=lambda task: task.task_index or 0)
            raise UsageError(f"job {job_id} is an array; give one task of it, as in {last}")
        if run.batch_log(job_id).exists() or run.attempts(job_id):
            return job_id
    return last_submission(lookup.Target(run, tuple(jobs))).jobs[0]
