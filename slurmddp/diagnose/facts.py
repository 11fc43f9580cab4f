"""What Slurm says of a job: the controller, then the accounting. Asks Slurm; no files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slurmddp import slurm
from slurmddp.errors import ClusterError

ASK_LIMIT_S: Final = 20.0
"""For each of Slurm's programs; a controller that is down takes longer than anybody wants to wait."""
_PAIR = re.compile(r"(?<!\S)([A-Za-z][\w/:]*)=(\S*)")
NO_NAME: Final = "allocation"
"""What the accounting calls a job whose start it has not heard of yet (22.05)."""
_ORDER: Final[tuple[slurm.Phase, ...]] = ("failed", "cancelled", "unknown", "running", "queued", "done")
_NOTHING: Final = frozenset({"(null)", "None", "N/A", "Unknown", "None assigned"})
_SACCT: Final = ("JobID", "JobName", "State", "ExitCode", "Reason", "NodeList", "MaxRSS")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a job; empty where it is not."""

    job_id: str
    source: str
    """scontrol, sacct, or `files` where Slurm knows nothing, or does not answer."""
    state: str = ""
    """Slurm's word."""
    reason: str = ""
    exit_code: str = ""
    """`77:0`: status and signal of the batch script."""
    name: str = ""
    nodes: str = ""
    output: str = ""
    """Where the output of a job goes."""
    errors: str = ""
    """Where its standard error goes."""
    max_rss: str = ""
    """The most memory that a task had, by the accounting, as `3904M`."""
    by: str = ""
    """Who cancelled it, by number; empty where Slurm does not keep it."""
    last_step: str = ""
    """The state of the step that was started last; empty without accounting."""
    silence: str = ""
    """Why Slurm did not answer."""

    @property
    def phase(self) -> slurm.Phase:
        """Where in its life the job is."""
        return slurm.PHASES.get(self.state, "unknown")


def ask(job_id: str, environ: Mapping[str, str]) -> Facts:
    """Return what Slurm knows of a job; `files` is the source where it knows nothing or does not answer."""
    known, silence = _of_controller(job_id, environ)
    booked = _of_accounting(job_id, environ) if not silence or "not found" not in silence else None
    if known is None:
        return booked or Facts(job_id=job_id, source="files", silence=silence)
    if booked is None:
        return known
    both = {name: getattr(booked, name) for name in ("by", "max_rss", "last_step")}
    return Facts(**{**known.__dict__, **both})


def _of_controller(job_id: str, environ: Mapping[str, str]) -> tuple[Facts | None, str]:
    try:
        answer = slurm.ask(slurm.show_command(job_id), environ, timeout_s=ASK_LIMIT_S)
    except ClusterError as error:
        return None, str(error)
    if answer.status != 0:
        return None, "" if "Invalid job id" in answer.stderr else answer.reason
    lines = [line for line in answer.stdout.splitlines() if line.startswith("JobId=")]
    return (_worst([_of_record(job_id, line) for line in lines]), "") if lines else (None, "")


def _worst(found: Sequence[Facts]) -> Facts:
    """Return what is to be told of an array that was meant as a whole: of a task that failed, if there is one."""
    return min(found, key=lambda facts: _ORDER.index(facts.phase))


def _of_record(job_id: str, line: str) -> Facts:
    head, _, rest = line.partition(" UserId=")
    known = {key: "" if value in _NOTHING else value for key, value in reversed(_PAIR.findall(rest))}
    known |= {key: value for key, value in _PAIR.findall(head.partition(" JobName=")[0]) if key.startswith("Array")}
    task = known.get("ArrayTaskId", "")
    return Facts(
        job_id=f"{known['ArrayJobId']}_{task}" if task.isdecimal() and "ArrayJobId" in known else job_id,
        source="scontrol",
        state=known.get("JobState", ""),
        reason=_reason(rest),
        exit_code=known.get("ExitCode", ""),
        name=head.partition(" JobName=")[2],
        nodes=known.get("NodeList", ""),
        output=known.get("StdOut", ""),
        errors=known.get("StdErr", ""),
    )


def _reason(text: str) -> str:
    """Return the reason; some are sentences, which end at the next key."""
    match = re.search(r"(?<!\S)Reason=(.*?)(?= [A-Z]\w*=|$)", text)
    return match[1] if match and match[1] not in _NOTHING else ""


def _of_accounting(job_id: str, environ: Mapping[str, str]) -> Facts | None:
    command = ["sacct", "--noheader", "--parsable2", f"--jobs={job_id}", f"--format={','.join(_SACCT)}"]
    try:
        answer = slurm.ask(command, environ, timeout_s=ASK_LIMIT_S)
    except ClusterError:
        return None
    cells = [line.split("|") for line in answer.stdout.splitlines() if line.count("|") == len(_SACCT) - 1]
    rows = [dict(zip(_SACCT, row, strict=True)) for row in cells]
    whole = {row["JobID"]: row for row in rows if re.fullmatch(rf"{job_id}(_\d+)?", row["JobID"])}
    if answer.status != 0 or not whole:
        return None
    steps = {key: [row for row in rows if row["JobID"].partition(".")[0] == key] for key in whole}
    return _worst([_of_row(row, steps[key]) for key, row in whole.items()])


def _of_row(row: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> Facts:
    """Return what the accounting says of a job; `rows` are its own, and those of its steps."""
    word = row["State"].split()
    return Facts(
        job_id=row["JobID"],
        source="sacct",
        state=word[0].rstrip("+") if word else "",
        reason="" if row["Reason"] in _NOTHING else row["Reason"],
        exit_code=row["ExitCode"],
        name=row["JobName"],
        nodes="" if row["NodeList"] in _NOTHING else row["NodeList"],
        max_rss=max((row["MaxRSS"] for row in rows), key=_amount, default=""),
        last_step=_last_step(rows),
        by=word[2] if word[1:2] == ["by"] and len(word) > 2 else "",  # noqa: PLR2004 - `CANCELLED by 1000`
    )


def _last_step(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the state of the step with the highest number: those of the batch script and the node have none."""
    told = ((row["JobID"].partition(".")[2], row["State"]) for row in rows)
    _, state = max(((int(number), state) for number, state in told if number.isdecimal()), default=(0, ""))
    return state.partition(" ")[0]


def _amount(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    return float(match[1]) * 1024 ** "KMGT".find(match[2] or "K") if match else -1.0


def lost_nodes(host_list: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of some nodes that are down, failing, or do not respond now; none where Slurm does not say."""
    command = ["sinfo", "--noheader", "--Node", f"--nodes={host_list}", "--format=%N %T"]
    try:
        answer = slurm.ask(command, environ, timeout_s=ASK_LIMIT_S)
    except ClusterError:
        return ()
    rows = [line.split() for line in answer.stdout.splitlines()]
    down = (row[0] for row in rows if len(row) > 1 and (row[1].startswith(("down", "fail")) or row[1].endswith("*")))
    return tuple(dict.fromkeys(down))
