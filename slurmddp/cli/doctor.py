"""`slurmddp doctor`: check for what would make a job fail, from this machine or from the nodes."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from slurmddp.cli.job_command import JobCommand, print_message, resolve_job
from slurmddp.cli.request_options import fill
from slurmddp.errors import UsageError
from slurmddp.runs.findings import Finding, worst
from slurmddp.text import WIDTH, escape_text, wrap_text

_COLOURS: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_INDENT: Final = " " * 21


@click.command(cls=JobCommand)
@click.option("--in-job", is_flag=True, help="Check on the nodes, by a short job, or by a step inside an allocation.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(job_file: Path | None, words: tuple[str, ...], *, in_job: bool, as_json: bool, **parameters: Any) -> int:
    """Check for what would make a job fail; nothing is queued without --in-job.

    Each finding says what was found, why it matters, and what to type. Exit status: 0 without errors, 2 for an error in
    the job's description, 3 if the cluster cannot run the job, 1 for any other error.
    """
    resolved = resolve_job(job_file, words, parameters)
    if in_job and resolved.spec.script:
        raise UsageError("--in-job checks the nodes of a job that slurmddp launches; leave it out for a batch script")
    if in_job:
        from slurmddp.doctor.in_job import check_by_job, check_by_step

        check = check_by_step if "SLURM_JOB_ID" in os.environ else check_by_job
        findings = check(fill(resolved).resolved if resolved.launch else resolved, os.environ, print_message)
    else:
        from slurmddp.doctor.before_submission import check_job

        findings = list(check_job(fill(resolved), os.environ))
    if as_json:
        click.echo(json.dumps({"status": worst(findings), "findings": [asdict(finding) for finding in findings]}))
    else:
        for line in format_findings(findings, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")):
            click.echo(line)
    return worst(findings)


def format_findings(findings: Iterable[Finding], *, colour: bool = False) -> Iterator[str]:
    """Yield lines of at most 80 columns: level and name of the check, then the finding, its reason and the advice."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for finding in findings:
        level = click.style(f"{finding.level:<8}", fg=_COLOURS[finding.level]) if colour else f"{finding.level:<8}"
        text = ": ".join(filter(None, (finding.place, finding.what)))
        first, *rest = wrap_text(text, _INDENT, width=width, cut=True)
        yield f"{level} {escape_text(finding.check):<11} {first.removeprefix(_INDENT)}"
        yield from rest
        yield from wrap_text(finding.why, _INDENT, width=width, cut=True)
        yield from wrap_text(finding.advice, f"{_INDENT}-> ", width=width, cut=True)
