"""`slurmddp submit`: submit a job, and wait for its end if asked to."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from slurmddp.cli.job_command import JobCommand
from slurmddp.cli.request_options import build_request, dependency_options
from slurmddp.cli.screen import confirm, print_json, print_message, print_result, write_bytes
from slurmddp.cluster.request import Request
from slurmddp.config.recipes import starts_anew, trains_alone
from slurmddp.config.resolve import BUILT_IN
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions
from slurmddp.slurm.environment import scrubbed
from slurmddp.submission import submit as submitting
from slurmddp.submission.compatibility import choose_run
from slurmddp.submission.submit_once import Submitted


@click.command(cls=JobCommand)
@click.option("--follow", is_flag=True, help="Wait for the end of the job, and print its output on stderr.")
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit with 0 only if it succeeded.")
@click.option("--dry-run", is_flag=True, help="Print the script and the answer of sbatch; nothing is queued.")
@click.option(
    "--chain",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Queue N more jobs of the run; each continues when the one before it has ended.",
)
@dependency_options
@click.option("--continue", "change", is_flag=True, help="Continue a run although its COMMAND has changed.")
@click.option("--force", is_flag=True, help="Submit the job even if it can apparently never start on this cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print which variables of another job or rank sbatch does not get.")
def submit(
    *,
    change: bool,
    dry_run: bool,
    chain: int,
    force: bool,
    wait: bool,
    follow: bool,
    as_json: bool,
    verbose: bool,
    **parameters: Any,
) -> int:
    """Submit a job; stdout is only its id.

    COMMAND is a training script with its arguments, `-m` and a module, or a batch script of your own. The same line
    again continues the run from its newest checkpoint. With options alone, as in --nodes 2, the bundled example trains;
    --help-worker has its tasks and options.
    """
    is_described = any(value not in (None, ()) for value in parameters.values())
    if not (is_described or dry_run):
        typed = "slurmddp submit train.py, or for the bundled example: slurmddp submit --nodes 1"
        question = "No script was given. Train the bundled example on all of a node?"
        confirm(question, f"there is nothing to train; type: {typed}")
    if verbose:
        print_message(f"left out of sbatch's environment: {' '.join(scrubbed(os.environ)) or 'nothing'}")
    request = build_request(parameters)
    asked: list[UsageError] = []
    resolved = request.resolved
    is_given = parameters["job_file"] or resolved.spec.command or set(resolved.program_origins.values()) - {BUILT_IN}
    chosen = [] if is_given else ["no COMMAND was given: the bundled example trains"]
    if not change:
        request = choose_run(request, os.environ, chosen.append, ask=asked.append)
    if dry_run or asked:  # the question, as an error with all others
        print_dry_run(request, chosen, change=change, force=force, as_json=as_json, found=asked)
        return 0
    waits = wait or follow
    accepted = partial(print_accepted, request=request, chosen=chosen, as_json=as_json, later=waits)
    job = submitting.submit(
        request, change=change, environ=os.environ, notice=print_message, chain=chain, force=force, accepted=accepted
    )
    check_recorded(job)
    if job.broken:
        raise SlurmddpError(
            f"job {job.job_id.number} is queued, but only {len(job.chain)} of {chain} jobs after it: {job.broken}"
        )
    if job.chain:
        print_message(f"jobs after it: {' '.join(later.number for later in job.chain)}")
    print_message(f"folder of the run: {job.run.path}")
    spec = request.resolved.spec
    is_new = len(submissions(job.run)) == 1
    command = spec.parsed_command
    if is_new and spec.world_size > 1 and trains_alone(command):
        print_message(
            f"{command.script} makes no process group: each of the {spec.world_size} ranks does the whole training by "
            "itself, and writes the same files; `slurmddp init --example ddp` writes a script for several ranks"
        )
    elif is_new and spec.requeue and not (spec.resume_args or spec.checkpoints) and starts_anew(command):
        print_message(
            f"if a preemption or a lost node stops it, {command.words[command.place]} is started again with the same "
            "arguments: it must find its own checkpoint, as in $SLURMDDP_CHECKPOINT_DIR; if it needs another argument "
            "for that, give --resume-args"
        )
    if not waits:
        return 0
    from slurmddp.runs import lookup

    tasks = lookup.settings(lookup.Target(job.run, (job.job_id.number,)))  # of an array; else the job itself
    return max(_wait(job, task.run or job.run, task.jobs[-1], show=follow, as_json=as_json) for task in tasks)


def print_accepted(job: Submitted, request: Request, chosen: list[str], *, as_json: bool, later: bool) -> None:
    """Print the id of a queued job, or its record as JSON if that does not come later; and once what was chosen."""
    try:
        if not (as_json and later):
            print_result({"jobs": [_result(job)]}, [job.job_id.number], as_json=as_json)
    finally:
        print_message(*chosen, f"{request.summary} (job {job.job_id.number})")
        chosen.clear()


def check_recorded(job: Submitted) -> None:
    """Raise SlurmddpError for a job that is queued, but that its run has no record of."""
    if job.unrecorded:
        raise SlurmddpError(f"job {job.job_id.number} is queued, but could not be recorded: {job.unrecorded}")


def print_dry_run(
    request: Request,
    chosen: Sequence[str],
    *,
    change: bool,
    force: bool,
    as_json: bool,
    found: Sequence[UsageError] = (),
) -> None:
    """Print the script that would be submitted, what sbatch says about it, and what was chosen."""
    script, answer = submitting.dry_run(request, change=change, environ=os.environ, force=force, found=found)
    if as_json:
        print_json(jobs=[{"text": script.text.decode(), "sbatch": answer}])
    else:
        write_bytes(sys.stdout, script.text)
        print_message(answer)
    print_message(*script.notices, *chosen)


def _result(job: Submitted) -> dict[str, Any]:
    return {
        "job_id": job.job_id.number,
        "cluster": job.job_id.cluster,
        "chain": [later.number for later in job.chain],
        "name": job.run.path.name,
        "run": str(job.run.path),
        "script": str(job.run.submitted_script(job.job_id.number)),
    }


def _wait(job: Submitted, run: RunDir, number: str, *, show: bool, as_json: bool) -> int:
    """Wait for the end of a job, or of a task of an array, and print how it ended; return the exit status."""
    from slurmddp.cli.status_format import details, format_labelled
    from slurmddp.diagnose.diagnosis import diagnose_in_time
    from slurmddp.diagnose.rule_types import format_diagnosis
    from slurmddp.monitoring import follow as following
    from slurmddp.monitoring.status import query_jobs
    from slurmddp.runs.lookup import Target

    result = {**_result(job), "job_id": number, "run": str(run.path)}
    show_line = print_message if show else None
    try:
        ended = following.wait_for_job(run, number, os.environ, show=show_line, notice=print_message)
    except (KeyboardInterrupt, SlurmddpError) as error:
        if as_json:
            print_json(jobs=[result])
        if isinstance(error, KeyboardInterrupt):
            print_message(f"job {number} continues; to cancel it, type: slurmddp cancel {number}")
        raise
    diagnosis = None
    try:
        diagnosis = diagnose_in_time(run, number, os.environ) if ended.meaning.wait_status else None
    except SlurmddpError as error:
        print_message(f"the cause of the failure is not known: {error}")
    if as_json:
        end = {"state": ended.word, "outcome": ended.kind, "reason": ended.reason}
        print_json(jobs=[{**result, **end, "diagnosis": asdict(diagnosis) if diagnosis else None}])
    told_by_diagnosis = ("why", "next") if diagnosis and diagnosis.sure == "certain" else ()
    for status in query_jobs([Target(run, (number,))], os.environ):
        more = (one for one in details(status) if one[0] not in told_by_diagnosis)
        print_message(*format_labelled(more))
    print_message(*(format_diagnosis(diagnosis) if diagnosis else ()))
    return ended.meaning.wait_status
