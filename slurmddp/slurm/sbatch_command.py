"""Runs sbatch to submit or only check a script, and parses its answer. No files."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from slurmddp.errors import ClusterError
from slurmddp.slurm import client
from slurmddp.slurm.client import Answer, LostAnswerError, RefusedError, check_reached, was_lost
from slurmddp.slurm.job_info import JobId
from slurmddp.slurm.values import parse_moment

_ADVICE = {
    "account|qos": "`sacctmgr show assoc user=$USER format=account,partition,qos` lists what you may use",
    "reservation": "`scontrol show reservation` lists what there is",
    "license": "`scontrol show licenses` lists what there is",
    "feature": "`sinfo -o '%P %f'` lists what nodes have",
    "partition|nodes? |more processors|time limit is|memory|gres": "`slurmddp cluster` shows what there is",
    "": "correct it, or leave it out: `sbatch --help` lists the options",
}
"""What to type, by what sbatch says of a job that it refuses; the first that fits counts."""


def sbatch_command(*, output: "Path | None", dependency: str = "", name: str = "") -> list[str]:
    """Return the command that submits a script from standard input, with its log at `output`.

    `%` in the folder's path is doubled, because sbatch replaces it. A dependency or a name beats that of the script.
    """
    command = ["sbatch", "--parsable"]
    if output:
        command.append(f"--output={str(output.parent).replace('%', '%%')}/{output.name}")
    return command + [f"--{key}={value}" for key, value in (("dependency", dependency), ("job-name", name)) if value]


def parse_sbatch(answer: Answer) -> JobId:
    """Return the job id from `sbatch --parsable`; lines that a site adds are skipped.

    Raises ClusterError when the job was refused, and LostAnswerError when it may be in the queue, as without an id.
    """
    if answer.status != 0:
        raise ClusterError(f"sbatch refused the job: {_explain_refusal(answer)}")
    found = re.findall(r"^(\d+)(?:;(\S+))?$", answer.stdout, re.MULTILINE)
    if not found:
        raise LostAnswerError(f"sbatch ended well but printed no job id: {answer.stdout.strip()[:200]!r}")
    return JobId(*found[-1])


def submit(command: Sequence[str], script: bytes, environ: Mapping[str, str]) -> tuple[JobId, str]:
    """Submit a script by `sbatch_command`; return the job id and the warnings of sbatch in one line.

    Raises as `parse_sbatch` and `ask` do.
    """
    answer = client.ask(command, environ, stdin=script)
    return parse_sbatch(answer), answer.reason if answer.stderr.strip() else ""


def test_only(script: bytes, environ: Mapping[str, str]) -> str:
    """Let sbatch check a script; return its message.

    Raises RefusedError when the job would be refused, and as `ask` does.
    """
    answer = client.ask(["sbatch", "--test-only"], environ, stdin=script)
    if answer.status != 0:
        raise RefusedError(f"sbatch would refuse the job: {_explain_refusal(answer)}")
    return answer.reason


def expected_start(said: str) -> "datetime | None":
    """Return the expected start in the message of `sbatch --test-only`; None without one."""
    match = re.search(r"to start at (\S+)", said)
    return parse_moment(match[1]) if match else None


def _explain_refusal(answer: Answer) -> str:
    """Return why sbatch refuses a job, and behind the last `;` what to type. Raises as `ask` if it has not refused."""
    check_reached(answer)
    if was_lost(answer):
        raise LostAnswerError(answer.reason)
    return f"{answer.reason}; {next(said for what, said in _ADVICE.items() if re.search(what, answer.reason.lower()))}"
