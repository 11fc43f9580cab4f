"""Parses the jobs and nodes that squeue, sacct, scontrol and sinfo print; lines that a site adds are skipped. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from slurmddp.slurm.job_info import JobInfo, Listing
from slurmddp.slurm.states import UNKNOWN
from slurmddp.slurm.values import KEY_VALUE, parse_duration, parse_moment, parse_record

MARK: Final = "slurmddp|"
"""Begins each line that squeue prints, by its `--format`."""

_ID: Final = re.compile(r"(\d+)(?:_(?:\d+|\[[^|]*))?(?:\+\d+)?")
_STATE: Final = re.compile(r"([A-Z][A-Z_]*)\+?(?: by (?P<by>\d+))?")
_AMOUNT: Final = re.compile(r"([\d.]+)([KMGT]?)")
_REASON: Final = re.compile(r"(?<!\S)Reason=(.*?)(?= [A-Z]\w*=|$)")
_NO_JOB_VALUE: Final = frozenset({"", "(null)", "None", "N/A", "Unknown", "None assigned"})
"""Words for a missing value of a job."""
_NO_LIMIT: Final = "365-00:00:00"
_NO_LIMIT_MINUTES: Final = "525600"
"""A year is the limit that Slurm shows for a job without one that was cancelled or preempted (22.05)."""
_PLACEHOLDER: Final = "allocation"
"""The job's name in the accounting until the accounting knows that the job has started (22.05)."""


def parse_queue(stdout: str) -> list[JobInfo]:
    """Parse the lines of squeue that begin with MARK."""
    lines = (line.removeprefix(MARK) for line in stdout.splitlines() if line.startswith(MARK))
    found = (_split_labels(line) for line in lines)
    return [_from_queue(fields) for fields in found if _ID.fullmatch(fields.get("id", ""))]


def _split_labels(line: str) -> dict[str, str]:
    head, _, name = line.partition("|name=")
    pairs = (part.partition("=") for part in head.split("|"))
    return {key: value.strip() for key, _, value in pairs} | {"name": name}


def _from_queue(fields: Mapping[str, str]) -> JobInfo:
    known = _without_missing(fields)
    return JobInfo(
        job_id=fields["id"],
        state=_state(known.get("state", "")),
        source="squeue",
        name=known.get("name", ""),
        user=known.get("user", ""),
        submitted=parse_moment(known.get("submit", "")),
        started=parse_moment(known.get("start", "")),
        ended=parse_moment(known.get("end", "")),
        elapsed_s=parse_duration(known.get("elapsed", "")),
        limit_s=_limit(known.get("limit", "")),
        nodes=known.get("nodes", ""),
        partition=known.get("partition", ""),
        reason=known.get("reason", ""),
    )


def parse_accounting(stdout: str) -> Listing:
    """Parse sacct's table by the names of its columns.

    Steps are left out; a job gets the memory of its step that used the most.
    """
    lines = iter(stdout.splitlines())
    head = next((line.split("|") for line in lines if {"JobID", "State"} <= set(line.split("|"))), None)
    if head is None:
        return Listing(silence="sacct answered with no table" if stdout.strip() else "sacct answered nothing")
    cells = (line.split("|", maxsplit=len(head) - 1) for line in lines)
    found = [dict(zip(head, row, strict=True)) for row in cells if len(row) == len(head)]
    memory = _most_memory(found) if "MaxRSS" in head else {}
    steps = _last_steps(found)
    rows = (row for row in found if _ID.fullmatch(row["JobID"]))
    return Listing(tuple(_from_accounting(row, memory, steps) for row in rows))


def _most_memory(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    most: dict[str, str] = {}
    for row in rows:
        job_id = row["JobID"].partition(".")[0]
        most[job_id] = max(most.get(job_id, ""), row["MaxRSS"], key=_amount)
    return most


def _last_steps(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return by job the state of its numbered step that started last."""
    told = ((*row["JobID"].partition(".")[::2], row["State"]) for row in rows)
    numbered = sorted((int(number), job_id, state) for job_id, number, state in told if number.isdecimal())
    return {job_id: _state(state) for _, job_id, state in numbered}


def _amount(text: str) -> float:
    match = _AMOUNT.fullmatch(text)
    return float(match[1]) * 1024 ** "KMGT".find(match[2] or "K") if match else -1.0


def _from_accounting(row: Mapping[str, str], memory: Mapping[str, str], steps: Mapping[str, str]) -> JobInfo:
    job_id, known = row["JobID"], _without_missing(row)
    name, minutes, elapsed = known.get("JobName", ""), known.get("TimelimitRaw", ""), known.get("ElapsedRaw", "")
    return JobInfo(
        job_id=job_id,
        state=_state(known.get("State", "")),
        source="sacct",
        name="" if name == _PLACEHOLDER else name,
        user=known.get("User", ""),
        submitted=parse_moment(known.get("Submit", "")),
        started=parse_moment(known.get("Start", "")),
        ended=parse_moment(known.get("End", "")),
        elapsed_s=int(elapsed) if elapsed.isdecimal() else None,
        limit_s=60 * int(minutes) if minutes.isdecimal() and minutes != _NO_LIMIT_MINUTES else None,
        nodes=known.get("NodeList", ""),
        partition=known.get("Partition", ""),
        reason=known.get("Reason", ""),
        exit_status=known.get("ExitCode", ""),
        max_rss=memory.get(job_id, ""),
        last_step=steps.get(job_id, ""),
        cancelled_by=_cancelled_by(known.get("State", "")),
    )


def parse_show(stdout: str) -> list[JobInfo]:
    """Parse lines of `scontrol --oneliner show job`; an array has one for each task."""
    return [_from_show(line) for line in stdout.splitlines() if line.startswith("JobId=")]


def _from_show(line: str) -> JobInfo:
    """Parse one line; a job's name may look like keys, so the keys are read from UserId on."""
    head, _, rest = line.partition(" UserId=")
    known = _without_missing(dict(reversed(KEY_VALUE.findall(rest))))
    own, _, name = head.partition(" JobName=")
    ids = parse_record(own)
    return JobInfo(
        job_id=f"{ids['ArrayJobId']}_{ids['ArrayTaskId']}" if "ArrayTaskId" in ids else ids["JobId"],
        state=_state(known.get("JobState", "")),
        source="scontrol",
        name=name,
        user=re.sub(r"\(\d+\)$", "", rest.partition(" ")[0]),
        submitted=parse_moment(known.get("SubmitTime", "")),
        started=parse_moment(known.get("StartTime", "")),
        ended=parse_moment(known.get("EndTime", "")),
        eligible=parse_moment(known.get("EligibleTime", "")),
        elapsed_s=parse_duration(known.get("RunTime", "")),
        limit_s=_limit(known.get("TimeLimit", "")),
        nodes=known.get("NodeList", ""),
        node_count=_count(known.get("NumNodes", "").partition("-")[0]),
        partition=known.get("Partition", ""),
        reason=_reason(rest),
        exit_status=known.get("ExitCode", ""),
        restarts=_count(known.get("Restarts", "")),
        requeue=known["Requeue"] == "1" if "Requeue" in known else None,
        batch_host=known.get("BatchHost", ""),
        preempted="PreemptTime" in known,
        dependency=known.get("Dependency", ""),
        excluded_nodes=known.get("ExcNodeList", ""),
        required_nodes=known.get("ReqNodeList", ""),
        output=known.get("StdOut", ""),
        errors=known.get("StdErr", ""),
    )


def _reason(text: str) -> str:
    """Return the reason; a reason with several words ends at the next key."""
    match = _REASON.search(text)
    return match[1] if match and match[1] not in _NO_JOB_VALUE else ""


def parse_nodes_down(stdout: str) -> tuple[str, ...]:
    """Parse lines of `node state`; return the nodes that are down, failing, or do not respond."""
    rows = [line.split() for line in stdout.splitlines()]
    down = (row[0] for row in rows if len(row) > 1 and (row[1].startswith(("down", "fail")) or row[1].endswith("*")))
    return tuple(dict.fromkeys(down))


def _without_missing(fields: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in fields.items() if value not in _NO_JOB_VALUE}


def _state(text: str) -> str:
    """Return the first word of `CANCELLED by 0` or `COMPLETED+`; UNKNOWN when it is not a state."""
    match = _STATE.fullmatch(text)
    return match[1] if match else UNKNOWN


def _cancelled_by(text: str) -> str:
    match = _STATE.fullmatch(text)
    return (match["by"] or "") if match else ""


def _limit(text: str) -> int | None:
    """Return a time limit in seconds, or None; squeue and scontrol print INVALID for one in the past."""
    return 0 if text == "INVALID" else None if text == _NO_LIMIT else parse_duration(text)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
