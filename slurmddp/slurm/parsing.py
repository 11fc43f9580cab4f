"""Parses the jobs and nodes that squeue, sacct, scontrol and sinfo print; lines that a site adds are skipped. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from slurmddp.slurm.commands import MARK
from slurmddp.slurm.job_info import JobInfo, Listing
from slurmddp.slurm.states import UNKNOWN
from slurmddp.slurm.values import parse_duration, parse_moment, parse_number, parse_record

_ID: Final = re.compile(r"(\d+)(?:_(?:\d+|\[[^|]*))?(?:\+\d+)?")
_STATE: Final = re.compile(r"([A-Z][A-Z_]*)\+?(?: by (?P<by>\d+))?")
_PHRASES: Final = re.compile(r"(?<!\S)([A-Z][\w/:]*)=(.*?)(?=\s+[A-Z][\w/:]*=|\s*$)")
"""Finds the pairs in a line of scontrol; a value may have blanks, as a reason or a path."""
_NO_JOB_VALUE: Final = frozenset({"", "(null)", "None", "N/A", "Unknown", "None assigned"})
"""Words for a missing value of a job."""
_YEAR_S: Final = 365 * 86400
"""The limit that Slurm shows for a job without one that was cancelled or preempted (22.05)."""
_PLACEHOLDER: Final = "allocation"
"""The job's name in the accounting until the accounting knows that the job has started (22.05)."""


def _state(text: str) -> str:
    """Return the first word of `CANCELLED by 0` or `COMPLETED+`; UNKNOWN when it is not a state."""
    match = _STATE.fullmatch(text)
    return match[1] if match else UNKNOWN


def _limit(text: str) -> "int | None":
    """Return a time limit in seconds, or None; squeue and scontrol print INVALID for one in the past."""
    limit_s = 0 if text == "INVALID" else parse_duration(text)
    return None if limit_s == _YEAR_S else limit_s


_FIELDS: Final[tuple[tuple[str, Callable[[str], Any], str], ...]] = (
    ("state", _state, "state State JobState"),
    ("name", str, "name JobName"),
    ("user", str, "user User"),
    ("submitted", parse_moment, "submit Submit SubmitTime"),
    ("started", parse_moment, "start Start StartTime"),
    ("ended", parse_moment, "end End EndTime"),
    ("eligible", parse_moment, "EligibleTime"),
    ("elapsed_s", parse_duration, "elapsed RunTime"),
    ("elapsed_s", parse_number, "ElapsedRaw"),
    ("limit_s", _limit, "limit TimelimitRaw TimeLimit"),
    ("nodes", str, "nodes NodeList"),
    ("node_count", lambda text: parse_number(text.partition("-")[0]), "NumNodes"),
    ("partition", str, "partition Partition"),
    ("reason", str, "reason Reason"),
    ("exit_status", str, "ExitCode"),
    ("cancelled_by", lambda text: text.partition(" by ")[2], "State"),
    ("restarts", parse_number, "Restarts"),
    ("requeue", "1".__eq__, "Requeue"),
    ("expedited", "Yes".__eq__, "ExpeditedRequeue"),
    ("batch_host", str, "BatchHost"),
    ("preempted", bool, "PreemptTime"),
    ("dependency", str, "Dependency"),
    ("excluded_nodes", str, "ExcNodeList"),
    ("required_nodes", str, "ReqNodeList"),
    ("output", str, "StdOut"),
    ("errors", str, "StdErr"),
)
"""The fields of JobInfo, how each is read, and its names in the output of squeue, sacct and scontrol."""
_NAMED: Final = [(name, field, parse) for field, parse, names in _FIELDS for name in names.split()]
_BY_NAME: Final = {name: [one[1:] for one in _NAMED if one[0] == name] for name, *_ in _NAMED}


def _read_fields(shown: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of JobInfo that have a value."""
    found: dict[str, Any] = {"state": UNKNOWN}
    for name, text in shown.items():
        if text not in _NO_JOB_VALUE:
            for field, parse in _BY_NAME.get(name, ()):
                found[field] = parse(text)
    is_early = (found.get("elapsed_s") or 0) + 60 < (found.get("limit_s") or 0)
    if found["state"] == "TIMEOUT" and is_early and shown.get("PreemptTime", "") not in _NO_JOB_VALUE:
        found |= {"state": "PREEMPTED", "reason": ""}  # before 24.05 the end of the grace time is a TIMEOUT, too
    return found


def parse_queue(stdout: str) -> list[JobInfo]:
    """Parse the lines of squeue that begin with MARK."""
    found = []
    for line in (line.removeprefix(MARK) for line in stdout.splitlines() if line.startswith(MARK)):
        head, _, name = line.partition("|name=")
        pairs = (part.partition("=") for part in head.split("|"))
        labels = {key: value.strip() for key, _, value in pairs} | {"name": name}
        if _ID.fullmatch(labels.get("id", "")):
            found.append(JobInfo(job_id=labels["id"], source="squeue", **_read_fields(labels)))
    return found


def parse_accounting(stdout: str) -> Listing:
    """Parse sacct's table by the names of its columns.

    Steps are left out; a job gets the memory of its step that used the most.
    """
    lines = iter(stdout.splitlines())
    head = next((line.split("|") for line in lines if {"JobID", "State"} <= set(line.split("|"))), None)
    if head is None:
        return Listing(silence="sacct answered with no table" if stdout.strip() else "sacct answered nothing")
    cells = (line.split("|", maxsplit=len(head) - 1) for line in lines)
    found = [dict(zip(head, row)) for row in cells if len(row) == len(head)]
    steps_of = defaultdict(list)
    for row in found:
        steps_of[row["JobID"].partition(".")[0]].append(row)
    jobs = []
    for row in found:
        if _ID.fullmatch(job_id := row["JobID"]):
            steps = steps_of[job_id]
            own = {key: text for key, text in row.items() if (key, text) != ("JobName", _PLACEHOLDER)}
            memory = max((one.get("MaxRSS", "") for one in steps), key=lambda size: (parse_number(size) or 0, size))
            told = ((one["JobID"].partition(".")[2], one["State"]) for one in steps)
            numbered = [(int(number), _state(state)) for number, state in told if number.isdecimal()]
            last = max(numbered, default=(0, ""))[1]  # the numbered step that started last
            jobs.append(JobInfo(job_id, source="sacct", max_rss=memory, last_step=last, **_read_fields(own)))
    return Listing(tuple(jobs))


def parse_show(stdout: str) -> list[JobInfo]:
    """Parse lines of `scontrol --oneliner show job`; an array has one for each task."""
    return [_from_show(line) for line in stdout.splitlines() if line.startswith("JobId=")]


def _from_show(line: str) -> JobInfo:
    """Parse one line; a job's name may look like keys, so the keys are read from UserId on."""
    head, _, rest = line.partition(" UserId=")
    own, _, name = head.partition(" JobName=")
    ids = parse_record(own)
    shown = dict(reversed(_PHRASES.findall(rest)))
    job_id, tasks = ids["JobId"], ids.get("ArrayTaskId", "")
    if tasks:  # as squeue shows those that wait together
        job_id = f"{ids['ArrayJobId']}_{tasks if tasks.isdecimal() else f'[{tasks}]'}"
    elif "HetJobOffset" in ids:
        job_id, name = f"{ids['HetJobId']}+{ids['HetJobOffset']}", name.rpartition(" HetJobIdSet=")[0]
    return JobInfo(
        job_id=job_id,
        source="scontrol",
        name=name,
        user=re.sub(r"\(\d+\)$", "", rest.partition(" ")[0]),
        **_read_fields(shown),
    )


def parse_nodes_down(stdout: str) -> tuple[str, ...]:
    """Parse lines of `node state`; return the nodes that are down, failing, or do not respond."""
    rows = [line.split() for line in stdout.splitlines()]
    down = (row[0] for row in rows if len(row) > 1 and (row[1].startswith(("down", "fail")) or row[1].endswith("*")))
    return tuple(dict.fromkeys(down))
