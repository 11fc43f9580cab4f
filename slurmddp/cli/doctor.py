"""`slurmddp doctor`: check for what would make a job fail, from this machine or from the nodes."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from slurmddp.cli.job_command import JobCommand, resolve_job
from slurmddp.cli.request_options import fill, name_run
from slurmddp.cli.screen import paint, print_message, print_result, screen_width
from slurmddp.errors import UsageError
from slurmddp.runs.findings import Finding, worst
from slurmddp.text import WIDTH, count, escape_text, wrap_text

_COLOURS: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_INDENT: Final = " " * 21


@click.command(cls=JobCommand)
@click.option("--in-job", is_flag=True, help="Check on the nodes, by a short job, or by a step inside an allocation.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(*, in_job: bool, as_json: bool, **parameters: Any) -> int:
    """Check for what would make a job fail; nothing is queued without --in-job.

    Each finding says what was found, why it matters, and what to type. Exit status: 0 without errors, 2 for an error in
    the job's description, 3 if the cluster cannot run the job, 1 for any other error.
    """
    resolved = resolve_job(parameters)
    if in_job and resolved.spec.script:
        raise UsageError("--in-job checks the nodes of a job that slurmddp launches; leave it out for a batch script")
    if in_job:
        from slurmddp.doctor.in_job import check_by_job, check_by_step

        check = check_by_step if "SLURM_JOB_ID" in os.environ else check_by_job
        findings = check(fill(resolved).resolved if resolved.launch else resolved, os.environ, print_message)
    else:
        from slurmddp.doctor.before_submission import check_job

        findings = list(check_job(name_run(fill(resolved)), os.environ))
    record = {"status": worst(findings), "findings": [asdict(finding) for finding in findings]}
    print_result(record, format_findings(findings), as_json=as_json)
    return worst(findings)


def format_findings(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield lines of at most 80 columns: level and name of the check, then the finding, its reason and the advice.

    The last line counts them.
    """
    width = min(WIDTH, screen_width())
    for finding in findings:
        level = paint(f"{finding.level:<8}", _COLOURS[finding.level])
        text = ": ".join(filter(None, (finding.place, finding.what)))
        first, *rest = wrap_text(text, _INDENT, width=width, cut=True)
        yield f"{level} {escape_text(finding.check):<11} {first.removeprefix(_INDENT)}"
        yield from rest
        yield from wrap_text(finding.why, _INDENT, width=width, cut=True)
        yield from wrap_text(finding.advice, f"{_INDENT}-> ", width=width, cut=True)
    numbers = Counter(finding.level for finding in findings)
    words = (f"{numbers['ok']} ok", *(count(numbers[level], level) for level in ("note", "warning", "error")))
    yield f"{count(len(findings), 'finding')}: {', '.join(words)}"
