"""One squeue, one sacct, and scontrol for a few: rows of jobs, whatever a site prints around them. No files.

Every program gets one time limit, and is asked a second time only when its answer was lost and there is time left.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from slurmddp import slurm
from slurmddp.errors import ClusterError
from slurmddp.spec import seconds
from slurmddp.status.values import Source

TRIES: Final = 2
PAUSE_S: Final = 0.5
MANY: Final = 500
"""From so many jobs on all jobs of the user are listed: squeue compares each job with each id, and Linux takes no
argument of more than 128 KiB."""

_MARK: Final = "slurmddp|"
_FIELDS: Final = {
    "id": "%i",
    "state": "%T",
    "submit": "%V",
    "start": "%S",
    "end": "%e",
    "elapsed": "%M",
    "limit": "%l",
    "nodes": "%N",
    "partition": "%P",
    "user": "%u",
    "reason": "%r",
    "name": "%j",
}
_COLUMNS: Final = "JobID,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,ExitCode,Partition,NodeList,User,Reason,JobName"
_FEWEST_COLUMNS: Final = "JobID,State,Submit,JobName"
_ID: Final = re.compile(r"(\d+)(?:_(?:\d+|\[[^|]*))?(?:\+\d+)?")
_STATE: Final = re.compile(r"([A-Z][A-Z_]*)\+?(?: by \d+)?")
_CLOCK: Final = re.compile(r"(\d+-)?\d+(:\d+){0,2}", re.ASCII)
_NOTHING: Final = frozenset({"", "(null)", "None", "N/A", "Unknown", "None assigned"})
_PLACEHOLDER: Final = "allocation"
"""The name that the accounting gives to a job whose start it has not heard of yet (22.05)."""

Environ = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A job as one of Slurm's programs shows it; empty or None for what it does not show."""

    job_id: str
    state: str
    source: Source
    name: str = ""
    user: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    """When it is expected to, for one that waits."""
    ended: datetime | None = None
    elapsed_s: int | None = None
    limit_s: int | None = None
    nodes: str = ""
    """As a host list: `n[1-4]`."""
    partition: str = ""
    reason: str = ""
    exit_status: str = ""
    restarts: int | None = None

    @property
    def number(self) -> str:
        """The number of the job, or of the array that it is of."""
        return number(self.job_id)


@dataclass(frozen=True)
class Heard:
    """What a program said."""

    rows: tuple[Row, ...] = ()
    silence: str = ""
    """Why it said nothing; empty when it did."""


def number(job_id: str) -> str:
    """Return the number of a job, or of the array that a task is of."""
    return job_id.partition("_")[0].partition("+")[0]


def queue(job_ids: Sequence[str], environ: Environ, *, timeout_s: float) -> Heard:
    """Return what squeue knows of these jobs, ended ones too; for many, what it knows of the user's."""

    def read(answer: slurm.Answer) -> Heard:
        if answer.status != 0 and "Invalid job id" not in answer.stderr:
            return _silent(answer)
        return Heard(tuple(parse_queue(answer.stdout)))

    return _heard(queue_command(job_ids), read, environ, timeout_s)


def accounting(job_ids: Sequence[str], since: datetime | None, environ: Environ, *, timeout_s: float) -> Heard:
    """Return what sacct knows of these jobs, every return to the queue as a row of its own, the oldest first.

    For many it is asked for those that the user has submitted `since`.
    """

    def read(answer: slurm.Answer) -> Heard:
        return _silent(answer) if answer.status != 0 else parse_accounting(answer.stdout)

    heard = _heard(accounting_command(job_ids, since, _COLUMNS), read, environ, timeout_s)
    if "Invalid field requested" in heard.silence:
        heard = _heard(accounting_command(job_ids, since, _FEWEST_COLUMNS), read, environ, timeout_s)
    return heard


def controller(job_id: str, environ: Environ, *, timeout_s: float) -> Heard:
    """Return what the controller holds of one job; of an array, of each task."""

    def read(answer: slurm.Answer) -> Heard:
        if answer.status != 0 and "Invalid job id" not in answer.stderr:
            return _silent(answer)
        return Heard(tuple(_shown(record) for record in slurm.parse_show(answer.stdout)))

    return _heard(slurm.show_command(job_id), read, environ, timeout_s)


def queue_command(job_ids: Sequence[str]) -> list[str]:
    """Return the command that lists jobs, a line each that nothing else can be taken for."""
    which = f"--user={slurm.user()}" if len(job_ids) > MANY else f"--jobs={','.join(job_ids)}"
    layout = "|".join(f"{key}={field}" for key, field in _FIELDS.items())
    return ["squeue", "--noheader", "--states=all", which, f"--format={_MARK}{layout}"]


def accounting_command(job_ids: Sequence[str], since: datetime | None, columns: str) -> list[str]:
    """Return the command that lists jobs by the accounting, with the names of the columns above them."""
    which = [f"--jobs={','.join(job_ids)}"]
    if len(job_ids) > MANY:
        start = (since or datetime.fromtimestamp(0).astimezone()).strftime("%Y-%m-%dT%H:%M:%S")
        which = [f"--user={slurm.user()}", f"--starttime={start}"]
    return ["sacct", "--allocations", "--parsable2", "--duplicates", *which, f"--format={columns}"]


def parse_queue(stdout: str) -> list[Row]:
    """Read the lines that squeue was told to write; others are a site's."""
    lines = (line.removeprefix(_MARK) for line in stdout.splitlines() if line.startswith(_MARK))
    found = (_labelled(line) for line in lines)
    return [_of_queue(fields) for fields in found if _ID.fullmatch(fields.get("id", ""))]


def _labelled(line: str) -> dict[str, str]:
    head, _, name = line.partition("|name=")
    pairs = (part.partition("=") for part in head.split("|"))
    return {key: value.strip() for key, _, value in pairs} | {"name": name}


def _of_queue(fields: Mapping[str, str]) -> Row:
    known = {key: value for key, value in fields.items() if value not in _NOTHING}
    return Row(
        job_id=fields["id"],
        state=_state(known.get("state", "")),
        source="squeue",
        name=known.get("name", ""),
        user=known.get("user", ""),
        submitted=_time(known.get("submit")),
        started=_time(known.get("start")),
        ended=_time(known.get("end")),
        elapsed_s=_seconds(known.get("elapsed")),
        limit_s=_seconds(known.get("limit")),
        nodes=known.get("nodes", ""),
        partition=known.get("partition", ""),
        reason=known.get("reason", ""),
    )


def parse_accounting(stdout: str) -> Heard:
    """Read sacct's table by the names above its columns, in whatever order and number they come."""
    lines = iter(stdout.splitlines())
    head = next((line.split("|") for line in lines if {"JobID", "State"} <= set(line.split("|"))), None)
    if head is None:
        return Heard(silence="sacct answered with no table" if stdout.strip() else "sacct answered nothing")
    cells = (line.split("|", maxsplit=len(head) - 1) for line in lines)
    found = (dict(zip(head, row, strict=True)) for row in cells if len(row) == len(head))
    return Heard(tuple(_of_accounting(row) for row in found if _ID.fullmatch(row["JobID"])))


def _of_accounting(row: Mapping[str, str]) -> Row:
    known = {key: value for key, value in row.items() if value not in _NOTHING}
    name, minutes, elapsed = known.get("JobName", ""), known.get("TimelimitRaw", ""), known.get("ElapsedRaw", "")
    return Row(
        job_id=row["JobID"],
        state=_state(known.get("State", "")),
        source="sacct",
        name="" if name == _PLACEHOLDER else name,
        user=known.get("User", ""),
        submitted=_time(known.get("Submit")),
        started=_time(known.get("Start")),
        ended=_time(known.get("End")),
        elapsed_s=int(elapsed) if elapsed.isdecimal() else None,
        limit_s=60 * int(minutes) if minutes.isdecimal() else None,
        nodes=known.get("NodeList", ""),
        partition=known.get("Partition", ""),
        reason=known.get("Reason", ""),
        exit_status=known.get("ExitCode", ""),
    )


def _shown(record: slurm.JobRecord) -> Row:
    return Row(
        job_id=record.job_id,
        state=_state(record.state),
        source="scontrol",
        name=record.name,
        user=record.user,
        submitted=record.submitted,
        started=record.started,
        ended=record.ended,
        elapsed_s=_seconds(record.elapsed),
        limit_s=_seconds(record.time_limit),
        nodes=record.node_list,
        partition=record.partition,
        reason=record.reason,
        exit_status=record.exit_status,
        restarts=record.restarts,
    )


def _heard(command: Sequence[str], read: Callable[[slurm.Answer], Heard], environ: Environ, timeout_s: float) -> Heard:
    """Ask, and once more when the answer was lost; all within the time."""
    deadline = time.monotonic() + timeout_s
    heard = Heard(silence="not asked")
    for _ in range(TRIES):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            answer = slurm.ask(command, environ, timeout_s=left_s)
        except ClusterError as error:
            return Heard(silence=str(error))
        heard = read(answer)
        if not slurm.was_lost(answer):
            break
        time.sleep(min(PAUSE_S, max(0.0, deadline - time.monotonic())))
    return heard


def _silent(answer: slurm.Answer) -> Heard:
    return Heard(silence=answer.reason.rpartition("; ")[2].removeprefix("slurm_load_jobs error: "))


def _state(text: str) -> str:
    """Return the state's word: `CANCELLED by 0` and `COMPLETED+` have something behind it; UNKNOWN for no state."""
    match = _STATE.fullmatch(text)
    return match[1] if match else "UNKNOWN"


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text or "").astimezone()
    except ValueError:
        return None


def _seconds(text: str | None) -> int | None:
    return seconds(text) if text and _CLOCK.fullmatch(text) else None


def earliest(times: Iterable[datetime | None], slack: timedelta) -> datetime | None:
    """Return the first of these times, and some time before it; None when one of them is not known."""
    known = list(times)
    if not known or any(moment is None for moment in known):
        return None
    return min(moment for moment in known if moment) - slack
