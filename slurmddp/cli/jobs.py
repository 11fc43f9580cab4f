"""render, submit and run: one job, shown, queued, or trained here."""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from slurmddp import config
from slurmddp.cli.options import SYNOPSIS, JobCommand, given, job_options

_LOCAL = ("gpus-per-node", "ntasks-per-node", "job-name", "python", "env", "runs-dir")


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
def render(job_file: Path | None, words: tuple[str, ...], **parameters: Any) -> None:
    """Print the script of a job; nothing is written or submitted.

    The bytes are those that `submit` hands to sbatch, so `slurmddp render ... | sbatch` works.
    """
    from slurmddp import submit as submitting

    text = submitting.script(_resolve(job_file, words, parameters).spec)
    _write(sys.stdout, text)


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
@click.option("--continue", "change", is_flag=True, help="Go on with a run though its COMMAND has changed.")
@click.option("--dry-run", is_flag=True, help="Print the script and what sbatch says to it; nothing is queued.")
@click.option("--wait", is_flag=True, help="Wait for the job's end; exit 0 only if it succeeded.")
@click.option("--follow", is_flag=True, help="As --wait, and show the job's output on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def submit(
    job_file: Path | None,
    words: tuple[str, ...],
    *,
    change: bool,
    dry_run: bool,
    wait: bool,
    follow: bool,
    as_json: bool,
    **parameters: Any,
) -> int:
    """Submit a job; stdout is its id alone.

    Without COMMAND the bundled worker trains; its options come after `--`.
    """
    from slurmddp import submit as submitting

    resolved = _resolve(job_file, words, parameters)
    if dry_run:
        return _dry_run(submitting.script(resolved.spec))
    done = submitting.submit(resolved, change=change, environ=os.environ)
    result = {"job": done.job_id.number, "cluster": done.job_id.cluster, "name": done.run.path.name}
    result |= {"run": str(done.run.path), "script": str(done.run.submitted_script(done.job_id.number))}
    waits = wait or follow
    if not (waits and as_json):
        _print_result(result, as_json=as_json)
    click.echo(f"run {done.run.path.name}: {done.run.path}", err=True)
    return _wait(done, result, show=follow, as_json=as_json) if waits else 0


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options(_LOCAL)
@click.option("--devices", metavar="N,N...", help="GPUs to use, as in 0,2 [default: as many as there are ranks].")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; the output goes to stderr.")
def run(job_file: Path | None, words: tuple[str, ...], *, devices: str | None, as_json: bool, **parameters: Any) -> int:
    """Run the same job on this machine, without Slurm (torchrun underneath).

    Rank 0 prints here; every rank has its own file in the run's folder.
    """
    from slurmddp import local
    from slurmddp import submit as submitting

    spec = _resolve(job_file, words, parameters).spec
    submitting.script(spec)
    plan = local.plan(spec, submitting.run_dir(spec), devices=devices, environ=os.environ)
    stream = sys.stderr if as_json else sys.stdout
    status = local.perform(plan, show=lambda line: _write(stream, line))
    click.echo(f"run {spec.job_name}: {plan.run.path}", err=True)
    if as_json:
        click.echo(json.dumps({"run": str(plan.run.path), "job": plan.job_id, "status": status}))
    return 0 if status == 0 else 1


def _resolve(job_file: Path | None, words: tuple[str, ...], parameters: dict[str, Any]) -> config.Resolved:
    return config.resolve(options=given(parameters), words=words, job_file=job_file, environ=os.environ)


def _dry_run(text: bytes) -> int:
    from slurmddp import slurm

    said = slurm.test_only(text, os.environ)
    _write(sys.stdout, text)
    click.echo(said, err=True)
    return 0


def _print_result(result: dict[str, Any], *, as_json: bool) -> None:
    click.echo(json.dumps(result) if as_json else result["job"])
    sys.stdout.flush()


def _wait(done: Any, result: dict[str, Any], *, show: bool, as_json: bool) -> int:
    from slurmddp import follow

    try:
        job = follow.wait(done.run, done.job_id.number, os.environ, show=_tell if show else None, notice=_tell)
    except KeyboardInterrupt:
        _tell(f"job {done.job_id.number} goes on without you; `scancel {done.job_id.number}` ends it")
        raise
    if as_json:
        _print_result(result | {"state": job.state, "reason": job.reason}, as_json=True)
    if job.phase != "done":
        _tell(f"job {job.job_id} ended {job.state}; its output is in {done.run.logs}")
    return 0 if job.phase == "done" else 1


def _write(stream: TextIO, raw: bytes) -> None:
    stream.buffer.write(raw)
    stream.flush()


def _tell(line: str) -> None:
    click.echo(line, err=True)
