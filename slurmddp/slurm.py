"""The only door to Slurm: its commands, what they answer, and one runner. No files.

Each question is a pair of pure functions, one that makes the command and one that reads the answer; `ask` is
the only place that starts a process.
"""

import hashlib
import os
import pwd
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from slurmddp.errors import ClusterError
from slurmddp.spec import SCRUBBED

TIMEOUT_S: Final = 60.0
"""How long one of Slurm's programs may take; its own message timeout is 10 s by default, with retries."""

NO_CLUSTER: Final = "log in to a cluster, try `slurmddp sandbox up`, or train on this machine with `slurmddp run`"

_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_JWT_USER"})
"""Variables that name the cluster, and so may reach its programs."""

_LOST_ANSWER = re.compile(r"timed out|zero bytes were transmitted", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"unable to contact|connection refused|connect failure|could not establish|find configuration|s_p_parse_file",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(sbatch|squeue|scontrol|sacct|sacctmgr|scancel|sinfo): (error: |fatal: )?", re.MULTILINE)

_COLUMNS = "%i|%T|%V|%r"
_REASON = re.compile(r"(?<!\S)Reason=(.*?)(?= [A-Z]\w*=|$)")
_KEY_VALUE = re.compile(r"(?<!\S)([A-Za-z][\w/:]*)=(\S*)")

Phase = Literal["queued", "running", "done", "failed", "cancelled", "unknown"]

PHASES: Final[Mapping[str, Phase]] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"), "queued"),
    **dict.fromkeys(
        (
            "RUNNING",
            "CONFIGURING",
            "POWER_UP_NODE",
            "COMPLETING",
            "SIGNALING",
            "STAGE_OUT",
            "STOPPED",
            "SUSPENDED",
            "RESIZING",
        ),
        "running",
    ),
    "COMPLETED": "done",
    **dict.fromkeys(
        (
            "FAILED",
            "TIMEOUT",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "BOOT_FAIL",
            "DEADLINE",
            "PREEMPTED",
            "LAUNCH_FAILED",
            "RECONFIG_FAIL",
        ),
        "failed",
    ),
    **dict.fromkeys(("CANCELLED", "REVOKED"), "cancelled"),
}
"""Every state and flag that squeue(1) and sacct(1) show of a job, 22.05 to 25.05; any other word is `unknown`."""

OVER: Final[frozenset[Phase]] = frozenset({"done", "failed", "cancelled"})
"""Where a job is that will not run again by itself."""


@dataclass(frozen=True)
class Answer:
    """What one of Slurm's programs said, and how it ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """The error in one line, without the program's own prefixes."""
        said = self.stderr if self.stderr.strip() else self.stdout
        lines = [line.strip() for line in _PREFIX.sub("", said).splitlines() if line.strip()]
        return "; ".join(dict.fromkeys(lines)) or f"exit status {self.status}"


class LostAnswerError(ClusterError):
    """The controller may have done what it was asked; its answer did not arrive."""


class RefusedError(ClusterError):
    """sbatch would not take the job."""


@dataclass(frozen=True)
class JobId:
    """A job as sbatch names it; the cluster only where several share a database."""

    number: str
    cluster: str = ""


@dataclass(frozen=True)
class Job:
    """A job as the controller, or the accounting, knows it."""

    job_id: str
    state: str
    submitted: datetime | None = None
    reason: str = ""

    @property
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return PHASES.get(self.state, "unknown")

    @property
    def ended(self) -> bool:
        """Whether it will not run again by itself."""
        return self.phase in OVER


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as the controller holds it: what it was accepted with, and where it stands."""

    job_id: str
    """`17`, or `17_3` for a task of an array."""
    name: str
    state: str
    reason: str
    requeue: bool
    """Whether Slurm lets it be requeued."""
    restarts: int
    partition: str
    time_limit: str
    """As Slurm writes it: `D-HH:MM:SS` or `UNLIMITED`."""
    nodes: int
    """The least number of nodes it can have."""
    excluded: str = ""
    """The nodes it must not have, as a host list."""
    eligible: datetime | None = None
    """Since when, or from when on, it may start, by the controller's clock."""
    output: str = ""
    """The path of its output."""
    errors: str = ""
    """The path of its standard error."""
    user: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    """When it is expected to, for one that waits."""
    ended: datetime | None = None
    elapsed: str = ""
    """How long it has run, as Slurm writes it."""
    node_list: str = ""
    exit_status: str = ""
    """Status and signal: `77:0`."""

    @property
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return PHASES.get(self.state, "unknown")


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
        _check_reached(answer)
        if was_lost(answer):
            raise LostAnswerError(answer.reason)
        raise ClusterError(f"sbatch refused the job: {answer.reason}")
    found = re.findall(r"^(\d+)(?:;(\S+))?$", answer.stdout, re.MULTILINE)
    if not found:
        raise LostAnswerError(f"sbatch ended well but printed no job id: {answer.stdout.strip()[:200]!r}")
    return JobId(*found[-1])


def submit(script: bytes, *, output: Path, environ: Mapping[str, str], dependency: str = "") -> tuple[JobId, str]:
    """Hand a script to sbatch; return the job's id, and a line of what sbatch warned of beside it.

    Raises as `parse_sbatch` and `ask` do.
    """
    answer = ask(sbatch_command(output=output, dependency=dependency), environ, stdin=script)
    return parse_sbatch(answer), answer.reason if answer.stderr.strip() else ""


def test_only(script: bytes, environ: Mapping[str, str]) -> str:
    """Return what sbatch says of a script that it only checks.

    Raises RefusedError when the job would be refused, and as `ask` does.
    """
    answer = ask(["sbatch", "--test-only"], environ, stdin=script)
    if answer.status != 0:
        _check_reached(answer)
        if was_lost(answer):
            raise LostAnswerError(answer.reason)
        raise RefusedError(f"sbatch would refuse the job: {answer.reason}")
    return answer.reason


def expected_start(said: str) -> datetime | None:
    """Return when a job would start by the words of `sbatch --test-only`; None where they do not say."""
    match = re.search(r"to start at (\S+)", said)
    return _time(match[1]) if match else None


def was_lost(answer: Answer) -> bool:
    """Whether the controller was there, but its answer did not arrive: asking again may help."""
    return answer.status != 0 and _LOST_ANSWER.search(answer.stderr) is not None


def _check_reached(answer: Answer) -> None:
    if _UNREACHABLE.search(answer.stderr):
        reason = answer.reason.rpartition("; ")[2]
        raise ClusterError(f"no Slurm controller answers from here ({reason}); {NO_CLUSTER}")


def jobs_command(job_ids: Sequence[str]) -> list[str]:
    """Return the command that lists these jobs, ended ones too as long as the controller knows them.

    An array has a line for each of its tasks.
    """
    listed = f"--jobs={','.join(job_ids)}"
    return ["squeue", "--noheader", "--array", "--states=all", listed, f"--format={_COLUMNS}"]


def parse_jobs(stdout: str) -> list[Job]:
    """Read lines of `id|STATE|time of submission|reason`."""
    rows = [line.strip().split("|", maxsplit=3) for line in stdout.splitlines() if line.count("|") >= 3]  # noqa: PLR2004 four columns
    return [Job(job_id, _state(state), _time(submitted), reason) for job_id, state, submitted, reason in rows]


def jobs(job_ids: Sequence[str], environ: Mapping[str, str]) -> list[Job]:
    """Return those of the jobs that the controller still knows. Raises ClusterError when it does not answer."""
    answer = ask(jobs_command(job_ids), environ)
    if answer.status != 0 and "Invalid job id" not in answer.stderr:
        raise ClusterError(f"squeue: {answer.reason}")
    return parse_jobs(answer.stdout)


def job(job_id: str, environ: Mapping[str, str]) -> Job:
    """Return one job: from squeue, then from the accounting where there is one; else its state is UNKNOWN.

    Raises ClusterError when the controller does not answer.
    """
    known = jobs([job_id], environ) or _ended(job_id, environ)
    return known[-1] if known else Job(job_id, "UNKNOWN")


def _ended(job_id: str, environ: Mapping[str, str]) -> list[Job]:
    """Return what the accounting tells of a job that the controller has forgotten: it has ended, or it is late."""
    options = ["--noheader", "--parsable2", "--allocations", f"--jobs={job_id}", "--format=JobID,State,Submit,Reason"]
    try:
        answer = ask(["sacct", *options], environ)
    except ClusterError:
        return []
    return [job for job in parse_jobs(answer.stdout) if job.ended] if answer.status == 0 else []


def show_command(job_id: str) -> list[str]:
    """Return the command that shows one job with everything the controller holds of it."""
    return ["scontrol", "--oneliner", "show", "job", job_id]


def parse_show(stdout: str) -> list[JobRecord]:
    """Read lines of `scontrol --oneliner show job`; an array has one for each task."""
    return [_record(line) for line in stdout.splitlines() if line.startswith("JobId=")]


def show(job_id: str, environ: Mapping[str, str]) -> list[JobRecord]:
    """Return what the controller holds of a job, for an array of each task; nothing when it does not know it.

    Raises ClusterError when it does not answer.
    """
    answer = ask(show_command(job_id), environ)
    _check_reached(answer)
    if answer.status != 0 and "Invalid job id" not in answer.stderr:
        raise ClusterError(f"scontrol show job {job_id}: {answer.reason}")
    return parse_show(answer.stdout) if answer.status == 0 else []


def _record(line: str) -> JobRecord:
    head, _, rest = line.partition(" UserId=")
    known = {key: "" if value in _NOTHING else value for key, value in reversed(_KEY_VALUE.findall(rest))}
    own, _, name = head.partition(" JobName=")
    ids = dict(_KEY_VALUE.findall(own))
    array = f"{ids['ArrayJobId']}_{ids['ArrayTaskId']}" if "ArrayTaskId" in ids else ""
    return JobRecord(
        job_id=array or ids["JobId"],
        name=name,
        state=_state(known.get("JobState", "")),
        reason=_reason(rest),
        requeue=known.get("Requeue") == "1",
        restarts=_number(known.get("Restarts", "")),
        partition=known.get("Partition", ""),
        time_limit=known.get("TimeLimit", ""),
        nodes=_number(known.get("NumNodes", "").partition("-")[0]),
        excluded=known.get("ExcNodeList", ""),
        eligible=_time(known.get("EligibleTime", "")),
        output=known.get("StdOut", ""),
        errors=known.get("StdErr", ""),
        user=re.sub(r"\(\d+\)$", "", rest.partition(" ")[0]),
        submitted=_time(known.get("SubmitTime", "")),
        started=_time(known.get("StartTime", "")),
        ended=_time(known.get("EndTime", "")),
        elapsed=known.get("RunTime", ""),
        node_list=known.get("NodeList", ""),
        exit_status=known.get("ExitCode", ""),
    )


def _reason(text: str) -> str:
    """Return the reason; some are sentences, which end at the next key."""
    match = _REASON.search(text)
    return match[1] if match and match[1] not in _NOTHING else ""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


_NOTHING = frozenset({"(null)", "None", "N/A", "Unknown", "None assigned"})
"""How scontrol says that there is no such value."""


def requeue_command(job_id: str) -> list[str]:
    """Return the command that puts a running job back into the queue, and does nothing to one that was cancelled."""
    return ["scontrol", "requeue", "Incomplete", job_id]


def update_command(job_id: str, key: str, value: str) -> list[str]:
    """Return the command that changes one value of a job in the queue."""
    return ["scontrol", "update", f"JobId={job_id}", f"{key}={value}"]


def nodes_command(host_list: str) -> list[str]:
    """Return the command that shows these nodes, and fails when there is one that the cluster has not."""
    return ["scontrol", "--oneliner", "show", "nodes", host_list]


def order(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Let a program do something; raise ClusterError with the command and its own words when it does not."""
    answer = ask(command, environ)
    if answer.status != 0:
        _check_reached(answer)
        raise ClusterError(f"{' '.join(command)}: {answer.reason}")


def query(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Return what a program prints; raise ClusterError with its own words when it fails, and as `ask` does."""
    answer = ask(command, environ, timeout_s=timeout_s)
    if answer.status != 0:
        _check_reached(answer)
        raise ClusterError(f"{command[0]}: {answer.reason}")
    return answer.stdout


def find_job(
    *, name: str, user: str, script: bytes, since: datetime, known: Sequence[str], environ: Mapping[str, str]
) -> JobId | None:
    """Look for a job that was accepted though sbatch's answer was lost: by user, name, time and its script.

    `since` is when sbatch was started by this machine's clock; five minutes of difference to the controller's
    are allowed for. Jobs in `known` are not it.
    """
    answer = ask(
        ["squeue", "--noheader", "--states=all", f"--user={user}", f"--name={name}", f"--format={_COLUMNS}"],
        environ,
    )
    if answer.status != 0:
        raise LostAnswerError(answer.reason)
    digest = hashlib.sha256(script).hexdigest()
    for candidate in parse_jobs(answer.stdout):
        recent = candidate.submitted is None or candidate.submitted >= since - timedelta(minutes=5)
        number = candidate.job_id.partition("_")[0]
        if recent and number not in known and script_digest(number, environ) == digest:
            return JobId(number)
    return None


def batch_script(job_id: str, environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return the script that the controller holds for a job. Raises ClusterError when it has none."""
    answer = ask(["scontrol", "write", "batch_script", job_id, "-"], environ, timeout_s=timeout_s)
    if answer.status != 0:
        raise ClusterError(f"scontrol write batch_script {job_id}: {answer.reason}")
    return answer.stdout.encode("utf-8", "surrogateescape")


def submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what speaks of another job or rank, or of sbatch's defaults."""
    left_out = set(scrubbed(environ))
    return {key: value for key, value in environ.items() if key not in left_out}


def scrubbed(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that no program of Slurm's gets from us."""
    return sorted(key for key in environ if key not in _KEPT and re.fullmatch(SCRUBBED, key))


def ask(
    command: Sequence[str], environ: Mapping[str, str], *, stdin: bytes = b"", timeout_s: float = TIMEOUT_S
) -> Answer:
    """Run one of Slurm's programs with a scrubbed environment and return its answer.

    Raises ClusterError when the program cannot be started, LostAnswerError when it takes longer than `timeout_s`.
    """
    try:
        done = subprocess.run(  # noqa: PLW1510 the status is part of the answer
            command, input=stdin, capture_output=True, env=submission_environment(environ), timeout=timeout_s
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} was not found; {NO_CLUSTER}") from error
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}; {NO_CLUSTER}") from error
    except subprocess.TimeoutExpired as error:
        raise LostAnswerError(f"{command[0]} did not end within {timeout_s:.0f} s") from error
    return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def user() -> str:
    """Return the name that Slurm knows the user by; LOGNAME and USER may be another's."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def script_digest(job_id: str, environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Return the sha256 of the script that the controller holds for a job; None when it shows none."""
    try:
        return hashlib.sha256(batch_script(job_id, environ, timeout_s=timeout_s)).hexdigest()
    except ClusterError:
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _state(text: str) -> str:
    """`CANCELLED by 0` and `COMPLETED+` are states with something behind them."""
    return text.split(maxsplit=1)[0].rstrip("+") if text.strip() else "UNKNOWN"


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None
