"""sbatch: a script into the queue, or only checked, and what it answers. No files."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from slurmddp.errors import ClusterError
from slurmddp.slurm import client
from slurmddp.slurm.client import Answer, LostAnswerError, RefusedError, check_reached, was_lost
from slurmddp.slurm.job_info import JobId
from slurmddp.slurm.time import parse_moment


def sbatch_command(*, output: Path, dependency: str = "") -> list[str]:
    """Return the command that submits a script from standard input, its own log at `output`.

    `%` has a meaning in that path and is doubled. A dependency beats the script's own.
    """
    command = ["sbatch", "--parsable", f"--output={str(output.parent).replace('%', '%%')}/{output.name}"]
    return [*command, f"--dependency={dependency}"] if dependency else command


def parse_sbatch(answer: Answer) -> JobId:
    """Read the job's id from `sbatch --parsable`; a site may print banners around it.

    Raises ClusterError when the job was refused, LostAnswerError when it may be in the queue: also when no id is there.
    """
    if answer.status != 0:
        _check_answered(answer)
        raise ClusterError(f"sbatch refused the job: {answer.reason}")
    found = re.findall(r"^(\d+)(?:;(\S+))?$", answer.stdout, re.MULTILINE)
    if not found:
        raise LostAnswerError(f"sbatch ended well but printed no job id: {answer.stdout.strip()[:200]!r}")
    return JobId(*found[-1])


def submit(script: bytes, *, output: Path, environ: Mapping[str, str], dependency: str = "") -> tuple[JobId, str]:
    """Hand a script to sbatch; return the job's id, and a line of what sbatch warned of beside it.

    Raises as `parse_sbatch` and `ask` do.
    """
    answer = client.ask(sbatch_command(output=output, dependency=dependency), environ, stdin=script)
    return parse_sbatch(answer), answer.reason if answer.stderr.strip() else ""


def test_only(script: bytes, environ: Mapping[str, str]) -> str:
    """Return what sbatch says of a script that it only checks.

    Raises RefusedError when the job would be refused, and as `ask` does.
    """
    answer = client.ask(["sbatch", "--test-only"], environ, stdin=script)
    if answer.status != 0:
        _check_answered(answer)
        raise RefusedError(f"sbatch would refuse the job: {answer.reason}")
    return answer.reason


def expected_start(said: str) -> datetime | None:
    """Return when a job would start by the words of `sbatch --test-only`; None where they do not say."""
    match = re.search(r"to start at (\S+)", said)
    return parse_moment(match[1]) if match else None


def _check_answered(answer: Answer) -> None:
    check_reached(answer)
    if was_lost(answer):
        raise LostAnswerError(answer.reason)
