"""Reads what squeue, sacct and scontrol print of jobs, whatever a site prints around it. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from slurmddp.slurm.job_info import Heard, Job, JobRecord, Row
from slurmddp.slurm.time import parse_duration, parse_moment

MARK: Final = "slurmddp|"
"""What each line begins with that squeue was told to write."""

_ID: Final = re.compile(r"(\d+)(?:_(?:\d+|\[[^|]*))?(?:\+\d+)?")
_STATE: Final = re.compile(r"([A-Z][A-Z_]*)\+?(?: by (?P<by>\d+))?")
_AMOUNT: Final = re.compile(r"([\d.]+)([KMGT]?)")
_REASON: Final = re.compile(r"(?<!\S)Reason=(.*?)(?= [A-Z]\w*=|$)")
_KEY_VALUE: Final = re.compile(r"(?<!\S)([A-Za-z][\w/:]*)=(\S*)")
_NOTHING: Final = frozenset({"", "(null)", "None", "N/A", "Unknown", "None assigned"})
_PLACEHOLDER: Final = "allocation"
"""The name that the accounting gives to a job whose start it has not heard of yet (22.05)."""


def parse_queue(stdout: str) -> list[Row]:
    """Read the lines that squeue was told to write; others are a site's."""
    lines = (line.removeprefix(MARK) for line in stdout.splitlines() if line.startswith(MARK))
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
        submitted=parse_moment(known.get("submit", "")),
        started=parse_moment(known.get("start", "")),
        ended=parse_moment(known.get("end", "")),
        elapsed_s=parse_duration(known.get("elapsed", "")),
        limit_s=parse_duration(known.get("limit", "")),
        nodes=known.get("nodes", ""),
        partition=known.get("partition", ""),
        reason=known.get("reason", ""),
    )


def parse_accounting(stdout: str) -> Heard:
    """Read sacct's table by the names above its columns, in whatever order and number they come.

    Steps are no jobs; a job has the most memory that one of its own took.
    """
    lines = iter(stdout.splitlines())
    head = next((line.split("|") for line in lines if {"JobID", "State"} <= set(line.split("|"))), None)
    if head is None:
        return Heard(silence="sacct answered with no table" if stdout.strip() else "sacct answered nothing")
    cells = (line.split("|", maxsplit=len(head) - 1) for line in lines)
    found = [dict(zip(head, row, strict=True)) for row in cells if len(row) == len(head)]
    memory = _most_memory(found) if "MaxRSS" in head else {}
    steps = _last_steps(found)
    jobs = (row for row in found if _ID.fullmatch(row["JobID"]))
    told = (_of_accounting(row, memory.get(row["JobID"], "")) for row in jobs)
    return Heard(tuple(replace(row, last_step=steps.get(row.job_id, "")) for row in told))


def _most_memory(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    most: dict[str, str] = {}
    for row in rows:
        job_id = row["JobID"].partition(".")[0]
        most[job_id] = max(most.get(job_id, ""), row["MaxRSS"], key=_amount)
    return most


def _last_steps(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return by job the state of its step with the highest number; the batch script's and the node's have none."""
    told = ((*row["JobID"].partition(".")[::2], row["State"]) for row in rows)
    numbered = sorted((int(number), job_id, state) for job_id, number, state in told if number.isdecimal())
    return {job_id: _state(state) for _, job_id, state in numbered}


def _amount(text: str) -> float:
    match = _AMOUNT.fullmatch(text)
    return float(match[1]) * 1024 ** "KMGT".find(match[2] or "K") if match else -1.0


def _of_accounting(row: Mapping[str, str], max_rss: str) -> Row:
    known = {key: value for key, value in row.items() if value not in _NOTHING}
    name, minutes, elapsed = known.get("JobName", ""), known.get("TimelimitRaw", ""), known.get("ElapsedRaw", "")
    return Row(
        job_id=row["JobID"],
        state=_state(known.get("State", "")),
        source="sacct",
        name="" if name == _PLACEHOLDER else name,
        user=known.get("User", ""),
        submitted=parse_moment(known.get("Submit", "")),
        started=parse_moment(known.get("Start", "")),
        ended=parse_moment(known.get("End", "")),
        elapsed_s=int(elapsed) if elapsed.isdecimal() else None,
        limit_s=60 * int(minutes) if minutes.isdecimal() else None,
        nodes=known.get("NodeList", ""),
        partition=known.get("Partition", ""),
        reason=known.get("Reason", ""),
        exit_status=known.get("ExitCode", ""),
        max_rss=max_rss,
        by=_by(known.get("State", "")),
    )


def of_record(record: JobRecord) -> Row:
    """Return the row of a job that the controller shows."""
    return Row(
        job_id=record.job_id,
        state=_state(record.state),
        source="scontrol",
        name=record.name,
        user=record.user,
        submitted=record.submitted,
        started=record.started,
        ended=record.ended,
        elapsed_s=parse_duration(record.elapsed),
        limit_s=parse_duration(record.time_limit),
        nodes=record.node_list,
        partition=record.partition,
        reason=record.reason,
        exit_status=record.exit_status,
        restarts=record.restarts,
        output=record.output,
        errors=record.errors,
    )


def _state(text: str) -> str:
    """Return the state's word: `CANCELLED by 0` and `COMPLETED+` have something behind it; UNKNOWN for no state."""
    match = _STATE.fullmatch(text)
    return match[1] if match else "UNKNOWN"


def _by(text: str) -> str:
    match = _STATE.fullmatch(text)
    return (match["by"] or "") if match else ""


def parse_jobs(stdout: str) -> list[Job]:
    """Read lines of `id|STATE|time of submission|reason`."""
    rows = [line.strip().split("|", maxsplit=3) for line in stdout.splitlines() if line.count("|") >= 3]  # noqa: PLR2004 four columns
    return [Job(job_id, _word(state), parse_moment(submitted), reason) for job_id, state, submitted, reason in rows]


def parse_show(stdout: str) -> list[JobRecord]:
    """Read lines of `scontrol --oneliner show job`; an array has one for each task."""
    return [_record(line) for line in stdout.splitlines() if line.startswith("JobId=")]


def _record(line: str) -> JobRecord:
    head, _, rest = line.partition(" UserId=")
    known = {key: "" if value in _NOTHING else value for key, value in reversed(_KEY_VALUE.findall(rest))}
    own, _, name = head.partition(" JobName=")
    ids = dict(_KEY_VALUE.findall(own))
    array = f"{ids['ArrayJobId']}_{ids['ArrayTaskId']}" if "ArrayTaskId" in ids else ""
    return JobRecord(
        job_id=array or ids["JobId"],
        name=name,
        state=_word(known.get("JobState", "")),
        reason=_reason(rest),
        requeue=known.get("Requeue") == "1",
        restarts=_number(known.get("Restarts", "")),
        partition=known.get("Partition", ""),
        time_limit=known.get("TimeLimit", ""),
        nodes=_number(known.get("NumNodes", "").partition("-")[0]),
        excluded=known.get("ExcNodeList", ""),
        eligible=parse_moment(known.get("EligibleTime", "")),
        output=known.get("StdOut", ""),
        errors=known.get("StdErr", ""),
        user=re.sub(r"\(\d+\)$", "", rest.partition(" ")[0]),
        submitted=parse_moment(known.get("SubmitTime", "")),
        started=parse_moment(known.get("StartTime", "")),
        ended=parse_moment(known.get("EndTime", "")),
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


def _word(text: str) -> str:
    """`CANCELLED by 0` and `COMPLETED+` are states with something behind them."""
    return text.split(maxsplit=1)[0].rstrip("+") if text.strip() else "UNKNOWN"
