"""Starts Slurm's programs, the only module that does: the processes, their answers and errors. No files."""

import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.errors import ClusterError
from slurmddp.slurm.environment import submission_environment
from slurmddp.text import quote_value

TIMEOUT_S: Final = 60.0
"""Limit for one of Slurm's programs; its own message timeout is 10 s by default, with retries."""

SLOW_S: Final = 2.5
"""A program that takes longer is reported, while it is waited for."""

_first_report: Final = threading.Lock()
"""Taken by the first report of a slow program, and not given back: one is enough."""

NO_CLUSTER: Final = "log in to a cluster, try `slurmddp sandbox up`, or train on this machine with `slurmddp run`"

_LOST_ANSWER: Final = "(?i)timed out|zero bytes were transmitted"
_UNREACHABLE: Final = (
    "(?i)unable to contact|connection refused|connect failure|could not establish|find configuration|s_p_parse_file"
    "|process configuration file"
)
_BOILERPLATE: Final = "(?m)^(sbatch|squeue|scontrol|sacct|sacctmgr|scancel|sinfo): (error: |fatal: )?|^Try .* --help.*"


class Answer(NamedTuple):
    """The output and the exit status of one of Slurm's programs."""

    status: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """The error message in one line, without the program's prefixes and its hint at --help."""
        said = self.stderr if self.stderr.strip() else self.stdout
        lines = [line.strip() for line in re.sub(_BOILERPLATE, "", said).splitlines() if line.strip()]
        return "; ".join(dict.fromkeys(lines)) or f"exit status {self.status}"


class LostAnswerError(ClusterError):
    """The controller's answer did not arrive; it may have done what it was asked."""


class RefusedError(ClusterError):
    """Slurm refuses a request, and would refuse it again."""


def spread(pause_s: float) -> float:
    """Return a pause that is by up to a fifth longer or shorter, so that many processes ask at different moments."""
    return pause_s * (0.8 + 0.4 * os.urandom(1)[0] / 255)


def ask(
    command: Sequence[str], environ: Mapping[str, str], *, stdin: bytes = b"", timeout_s: float = TIMEOUT_S
) -> Answer:
    """Run one of Slurm's programs with a scrubbed environment and return its answer.

    A warning is logged once when a program is slow. Raises ClusterError when the program cannot be started or cannot
    read SLURM_CONF, LostAnswerError when it takes longer than `timeout_s`.
    """
    if not any(os.access(Path(folder, command[0]), os.F_OK) for folder in os.get_exec_path(environ)):
        raise ClusterError(f"{command[0]} was not found; {NO_CLUSTER}")
    import subprocess  # noqa: PLC0415 - where no Slurm is, nothing is started

    slow = threading.Timer(SLOW_S, _report_slow, [command[0]])
    slow.daemon = True
    slow.start()
    try:
        done = subprocess.run(  # noqa: PLW1510 the status is part of the answer
            command, input=stdin, capture_output=True, env=submission_environment(environ), timeout=timeout_s
        )
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}; {NO_CLUSTER}") from error
    except subprocess.TimeoutExpired as error:
        _check_configuration(environ)
        raise LostAnswerError(f"{command[0]} did not end within {timeout_s:.0f} s") from error
    finally:
        slow.cancel()
    answer = Answer(done.returncode, _text(done.stdout), _text(done.stderr))
    if answer.status != 0 and re.search(_UNREACHABLE, answer.stderr):
        _check_configuration(environ)
    return answer


def _check_configuration(environ: Mapping[str, str]) -> None:
    """Raise ClusterError if SLURM_CONF names a file that cannot be read."""
    if path := environ.get("SLURM_CONF"):
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise ClusterError(
                f"Slurm cannot read its configuration {quote_value(path)} (SLURM_CONF): {error.strerror}; correct or "
                "unset SLURM_CONF"
            ) from error


def _report_slow(program: str) -> None:
    if not _first_report.acquire(blocking=False):
        return
    import logging  # noqa: PLC0415 needed only when Slurm is slow

    logging.getLogger("slurmddp").warning("Slurm has not answered %s yet; waiting for it", program)


def query(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the output of a program. Raises ClusterError with its message when it fails, and as `ask` does."""
    answer = ask(command, environ, timeout_s=timeout_s)
    if answer.status != 0:
        check_reached(answer)
        raise ClusterError(f"{command[0]}: {answer.reason}")
    return answer.stdout


def query_all(commands: Sequence[Sequence[str]], environ: Mapping[str, str], *, timeout_s: float) -> list[str]:
    """Return the outputs of programs that run at the same time.

    When all have ended, raises the error of the first that failed, as `query` does.
    """
    answers: dict[int, str | Exception] = {}

    def query_one(number: int) -> None:
        try:
            answers[number] = query(commands[number], environ, timeout_s=timeout_s)
        except Exception as error:  # noqa: BLE001 it is raised below, in the calling thread
            answers[number] = error

    threads = [threading.Thread(target=query_one, args=(number,), daemon=True) for number in range(len(commands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [_output_or_error(answers[number]) for number in range(len(commands))]


def _output_or_error(answer: str | Exception) -> str:
    if isinstance(answer, Exception):
        raise answer
    return answer


def order(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a program that changes something. Raises ClusterError with the command and its message when it fails."""
    answer = ask(command, environ)
    if answer.status != 0:
        check_reached(answer)
        raise ClusterError(f"{' '.join(command)}: {answer.reason}")


def was_lost(answer: Answer) -> bool:
    """Return whether the controller's answer did not arrive; another try may help."""
    return answer.status != 0 and re.search(_LOST_ANSWER, answer.stderr) is not None


def check_reached(answer: Answer) -> None:
    """Raise ClusterError when a program did not reach the controller."""
    if re.search(_UNREACHABLE, answer.stderr):
        reason = answer.reason.rpartition("; ")[2]
        raise ClusterError(f"no Slurm controller answers from here ({reason}); {NO_CLUSTER}")


def explain_silence(silence: str) -> str:
    """Return why jobs that were submitted are not known; `run` and `sandbox` are no help for those."""
    reason = silence.removesuffix(f"; {NO_CLUSTER}")
    return f"the controller does not answer ({silence})" if reason == silence else f"{reason}; log in to the cluster"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
