"""Starts Slurm's programs, the only module that does: the processes, their answers and errors. No files."""

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from slurmddp.errors import ClusterError
from slurmddp.slurm.environment import submission_environment
from slurmddp.text import quote_value

if TYPE_CHECKING:
    from subprocess import Popen

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
    with _started(command, environ, stdin) as process:
        return _wait(process, command[0], timeout_s)


@contextmanager
def _started(command: Sequence[str], environ: Mapping[str, str], stdin: bytes) -> "Iterator[Popen[bytes]]":
    """Start a program; when the block ends, it has ended, too, or is killed."""
    if not any(os.access(Path(folder, command[0]), os.F_OK) for folder in os.get_exec_path(environ)):
        raise ClusterError(f"{command[0]} was not found; {NO_CLUSTER}")
    _check_configuration(environ)
    import subprocess  # noqa: PLC0415 - where no Slurm is, nothing is started

    with open(os.memfd_create("stdin"), "w+b", buffering=0) as file:  # noqa: PTH123 it has no path
        file.write(stdin)
        file.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=submission_environment(environ),
            )
        except OSError as error:
            raise ClusterError(f"{command[0]} cannot be started: {error.strerror}; {NO_CLUSTER}") from error
    with process:
        try:
            yield process
        finally:
            process.kill()


def _wait(process: "Popen[bytes]", program: str, timeout_s: float) -> Answer:
    """Return the answer of a program that was started. Raises LostAnswerError when it does not end in time."""
    from subprocess import TimeoutExpired  # noqa: PLC0415 as above

    left_s = timeout_s
    if timeout_s > SLOW_S:
        with suppress(TimeoutExpired):
            return _read_answer(process, SLOW_S)
        _report_slow(program)
        left_s -= SLOW_S
    try:
        return _read_answer(process, left_s)
    except TimeoutExpired as error:
        raise LostAnswerError(f"{program} did not end within {timeout_s:.0f} s") from error


def _read_answer(process: "Popen[bytes]", timeout_s: float) -> Answer:
    stdout, stderr = process.communicate(timeout=timeout_s)
    return Answer(process.returncode, _text(stdout), _text(stderr))


def _check_configuration(environ: Mapping[str, str]) -> None:
    """Raise ClusterError if SLURM_CONF names a file that cannot be read; Slurm's programs would try for a minute."""
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
    return query_all([(command, b"")], environ, timeout_s=timeout_s)[0]


def query_all(
    questions: Sequence[tuple[Sequence[str], bytes]], environ: Mapping[str, str], *, timeout_s: float
) -> list[str]:
    """Return the outputs of programs that run at the same time, each with its standard input.

    Raises the error of the first that failed, as `query` does; the others are then killed.
    """
    with ExitStack() as stack:
        running = [(stack.enter_context(_started(command, environ, stdin)), command[0]) for command, stdin in questions]
        return [_output(_wait(process, program, timeout_s), program) for process, program in running]


def _output(answer: Answer, program: str) -> str:
    if answer.status != 0:
        check_reached(answer)
        raise ClusterError(f"{program}: {answer.reason}")
    return answer.stdout


def order(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a program that changes something. Raises ClusterError with the command and its message when it fails."""
    _output(ask(command, environ), " ".join(command))


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
