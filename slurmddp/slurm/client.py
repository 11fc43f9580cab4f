"""The only place that starts Slurm's programs: one process, its answer, and the errors it can end in. No files."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.errors import ClusterError
from slurmddp.slurm.environment import submission_environment

TIMEOUT_S: Final = 60.0
"""How long one of Slurm's programs may take; its own message timeout is 10 s by default, with retries."""

NO_CLUSTER: Final = "log in to a cluster, try `slurmddp sandbox up`, or train on this machine with `slurmddp run`"

_LOST_ANSWER: Final = "(?i)timed out|zero bytes were transmitted"
_UNREACHABLE: Final = (
    "(?i)unable to contact|connection refused|connect failure|could not establish|find configuration|s_p_parse_file"
)
_PREFIX: Final = "(?m)^(sbatch|squeue|scontrol|sacct|sacctmgr|scancel|sinfo): (error: |fatal: )?"


class Answer(NamedTuple):
    """What one of Slurm's programs said, and how it ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """The error in one line, without the program's own prefixes."""
        said = self.stderr if self.stderr.strip() else self.stdout
        lines = [line.strip() for line in re.sub(_PREFIX, "", said).splitlines() if line.strip()]
        return "; ".join(dict.fromkeys(lines)) or f"exit status {self.status}"


class LostAnswerError(ClusterError):
    """The controller may have done what it was asked; its answer did not arrive."""


class RefusedError(ClusterError):
    """sbatch would not take the job."""


def ask(
    command: Sequence[str], environ: Mapping[str, str], *, stdin: bytes = b"", timeout_s: float = TIMEOUT_S
) -> Answer:
    """Run one of Slurm's programs with a scrubbed environment and return its answer.

    Raises ClusterError when the program cannot be started, LostAnswerError when it takes longer than `timeout_s`.
    """
    if not any(os.access(Path(folder, command[0]), os.F_OK) for folder in os.get_exec_path(environ)):
        raise ClusterError(f"{command[0]} was not found; {NO_CLUSTER}")
    import subprocess  # noqa: PLC0415 - where no Slurm is, nothing is started

    try:
        done = subprocess.run(  # noqa: PLW1510 the status is part of the answer
            command, input=stdin, capture_output=True, env=submission_environment(environ), timeout=timeout_s
        )
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}; {NO_CLUSTER}") from error
    except subprocess.TimeoutExpired as error:
        raise LostAnswerError(f"{command[0]} did not end within {timeout_s:.0f} s") from error
    return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def query(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Return what a program prints; raise ClusterError with its own words when it fails, and as `ask` does."""
    answer = ask(command, environ, timeout_s=timeout_s)
    if answer.status != 0:
        check_reached(answer)
        raise ClusterError(f"{command[0]}: {answer.reason}")
    return answer.stdout


def order(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Let a program do something; raise ClusterError with the command and its own words when it does not."""
    answer = ask(command, environ)
    if answer.status != 0:
        check_reached(answer)
        raise ClusterError(f"{' '.join(command)}: {answer.reason}")


def was_lost(answer: Answer) -> bool:
    """Whether the controller was there, but its answer did not arrive: asking again may help."""
    return answer.status != 0 and re.search(_LOST_ANSWER, answer.stderr) is not None


def check_reached(answer: Answer) -> None:
    """Raise ClusterError when a program says that it did not reach the controller."""
    if re.search(_UNREACHABLE, answer.stderr):
        reason = answer.reason.rpartition("; ")[2]
        raise ClusterError(f"no Slurm controller answers from here ({reason}); {NO_CLUSTER}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
