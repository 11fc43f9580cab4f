"""Runs Slurm's client programs, each within a time, and returns its answer or its error. No files.

No other module starts one. What is started elsewhere: Slurm's daemons, by the sandbox (`sandbox/daemons.py`), and the
`srun` line of a batch script, by its bash. The commands are in `commands.py` and `sbatch_command.py`.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from slurmddp.errors import ClusterError
from slurmddp.slurm.environment import submission_environment
from slurmddp.text import quote_value

if TYPE_CHECKING:
    from subprocess import Popen

TIMEOUT_S: Final = 60.0
"""Limit for one of Slurm's programs; its own message timeout is 10 s by default, with retries."""

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

    Raises ClusterError when the program cannot be started or cannot read SLURM_CONF, LostAnswerError when it takes
    longer than `timeout_s`.
    """
    _check_configuration(environ)
    with started(command, submission_environment(environ)) as process:
        return _wait(process, command[0], stdin, timeout_s)


def run_step(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float) -> Answer:
    """Run a program of a job to its end, as srun, with the job's variables, which `ask` removes. Raises as `ask`."""
    with started(command, environ) as process:
        return _wait(process, command[0], b"", timeout_s)


def find_program(program: str, environ: Mapping[str, str]) -> None:
    """Raise ClusterError when a program is not in PATH."""
    if not any(os.access(Path(folder, program), os.F_OK) for folder in os.get_exec_path(environ)):
        raise ClusterError(f"{program} was not found; {NO_CLUSTER}")


def become(command: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program, as srun on a terminal. Raises ClusterError when that cannot be started."""
    find_program(command[0], environ)
    try:
        os.execvpe(command[0], command, submission_environment(environ))  # noqa: S606 - words, and no shell
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}") from error


@contextmanager
def started(
    command: Sequence[str], environ: Mapping[str, str], *, own_session: bool = False
) -> Iterator["Popen[bytes]"]:
    """Start a program, which has ended or is killed at the end. Raises ClusterError when it cannot be started."""
    find_program(command[0], environ)
    import subprocess  # noqa: PLC0415 - it takes 5 ms to load, and where no Slurm is, nothing is started

    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(  # noqa: S603 - the door to Slurm's programs: words, and no shell
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=own_session
        )
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}; {NO_CLUSTER}") from error
    with process:
        try:
            yield process
        finally:
            process.kill()


def _wait(process: "Popen[bytes]", program: str, stdin: bytes, timeout_s: float) -> Answer:
    """Return the answer of a program. Raises LostAnswerError when it takes longer than `timeout_s`."""
    from subprocess import TimeoutExpired  # noqa: PLC0415 - see above

    try:
        out, err = (text.decode("utf-8", "surrogateescape") for text in process.communicate(stdin, timeout_s))
    except TimeoutExpired as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip().rpartition("\n")[2]
        lost = f"{program} did not end within {timeout_s:.0f} s{f' ({said})' if said else ''}"
        raise LostAnswerError(lost) from error
    return Answer(process.returncode, out, err)


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


def query(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the output of a program. Raises ClusterError with its message when it fails, and as `ask` does."""
    return _output(ask(command, environ, timeout_s=timeout_s), command[0])


def query_both(
    first: Sequence[str], stdin: bytes, second: Sequence[str], environ: Mapping[str, str], *, timeout_s: float
) -> tuple[str, str]:
    """Return the outputs of two programs that run at the same time; the first gets `stdin`. Raises as `query` does."""
    _check_configuration(environ)
    scrubbed = submission_environment(environ)
    with started(first, scrubbed) as one, started(second, scrubbed) as other:
        said = _output(_wait(one, first[0], stdin, timeout_s), first[0])
        return said, _output(_wait(other, second[0], b"", timeout_s), second[0])


def try_query(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the output of a program; empty when it cannot be started or does not end."""
    try:
        return ask(command, environ, timeout_s=timeout_s).stdout
    except ClusterError:
        return ""


def order(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a program that changes something. Raises ClusterError with the command and its message when it fails."""
    _output(ask(command, environ), " ".join(command))


def _output(answer: Answer, what: str) -> str:
    if answer.status != 0:
        check_reached(answer)
        raise ClusterError(f"{what}: {answer.reason}")
    return answer.stdout


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
