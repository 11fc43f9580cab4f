"""`slurmddp doctor`: what would go wrong with a job, before it is queued or on the nodes themselves."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from slurmddp.cli.job_options import SYNOPSIS, JobCommand, job_options, resolve, tell
from slurmddp.config.resolve import Resolved
from slurmddp.runs.findings import Finding, worst
from slurmddp.text import WIDTH, printable, wrapped

_COLOURS: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_INDENT: Final = " " * 21


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
@click.option("--in-job", is_flag=True, help="Look from the nodes: by a short job, or by a step inside an allocation.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(job_file: Path | None, words: tuple[str, ...], *, in_job: bool, as_json: bool, **parameters: Any) -> int:
    """Look for what would make a job fail; nothing is queued without --in-job.

    Each finding says what is so, why it matters, and what to type. Ends with 0 when nothing certainly breaks the job,
    2 when it is wrong by itself, 3 when the cluster rules it out, 1 for anything else.
    """
    resolved = resolve(job_file, words, parameters)
    findings = _in_job(resolved) if in_job else _before(resolved)
    if as_json:
        click.echo(json.dumps({"status": worst(findings), "findings": [asdict(finding) for finding in findings]}))
    else:
        for line in table(findings, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")):
            click.echo(line)
    return worst(findings)


def _before(resolved: Resolved) -> list[Finding]:
    from slurmddp.cluster.request import fitted
    from slurmddp.doctor.before_submission import examine

    return list(examine(fitted(resolved, os.environ), os.environ))


def _in_job(resolved: Resolved) -> list[Finding]:
    from slurmddp.doctor.in_job import by_job, by_step

    look = by_step if "SLURM_JOB_ID" in os.environ else by_job
    return look(resolved, os.environ, tell)


def table(findings: Iterable[Finding], *, colour: bool = False) -> Iterator[str]:
    """Yield lines of at most 80 columns: level and check on the left, on the right what, why and what to type."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for finding in findings:
        level = click.style(f"{finding.level:<8}", fg=_COLOURS[finding.level]) if colour else f"{finding.level:<8}"
        told = ": ".join(filter(None, (finding.place, finding.what)))
        first, *rest = wrapped(told, _INDENT, width=width, cut=True)
        yield f"{level} {printable(finding.check):<11} {first.removeprefix(_INDENT)}"
        yield from rest
        yield from wrapped(finding.why, _INDENT, width=width, cut=True)
        yield from wrapped(finding.advice, f"{_INDENT}-> ", width=width, cut=True)
