"""Explains why a job waits: the meaning of each of Slurm's reasons, and what to type. Pure.

The names are those of Slurm's job_state_reason.c, 20.11 to 25.x (https://slurm.schedmd.com/job_reason_codes.html).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

Outlook = Literal["yes", "perhaps", "no"]

JOB_ID: Final = "JOBID"
"""The placeholder of the job id in a command."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One reason why a job does not run."""

    reason: str
    """Slurm's word."""
    meaning: str
    advice: str = ""
    """What to type or whom to ask; empty when the user can only wait."""
    by_itself: Outlook = "perhaps"
    """Whether the job can start without help."""


def explain(reason: str, job_id: str = JOB_ID) -> Explanation:
    """Return the meaning of a reason and the advice; an unknown reason is its own meaning."""
    text = reason.strip("() ").replace("_", " ")
    name = text.partition(",")[0].strip()
    known = (
        next((known for start, known in _SENTENCES.items() if text.lower().startswith(start)), None)
        or _REASONS.get(name.lower())
        or _explain_limit(name)
        or Explanation(reason="", meaning=text)
    )
    return replace(known, reason=reason, advice=known.advice.replace(JOB_ID, job_id))


def warning(reason: str, job_id: str) -> str:
    """Return meaning and advice of a reason when the job may not start by itself; else an empty text."""
    why = explain(reason, job_id)
    return f"{why.meaning}; {why.advice}" if why.advice and why.by_itself != "yes" else ""


def never_starts(reason: str) -> bool:
    """Return whether a job that waits for this reason only waits until it is cancelled or changed; not one on hold."""
    why = explain(reason)
    return why.by_itself == "no" and "scontrol release" not in why.advice


def _explain_limit(name: str) -> "Explanation | None":
    """Explain a limit of the accounting by its name, which has the owner, the resource and the scope."""
    match = _LIMIT.fullmatch(name)
    if not match:
        return None
    what, option = _RESOURCES[match["what"].lower()]
    amount = f"{what} x minutes" if match["minutes"] else what
    whose = "its QOS" if match["whose"] == "QOS" else "your account"
    if match["kind"] == "Min":
        return _line("no", f"it asks for less than {whose} demands: {amount}", _again("more", option))
    if match["per"] in ("PerJob", "PerNode"):
        each = "a node" if match["per"] == "PerNode" else "a job"
        return _line("no", f"it asks for more than {whose} allows {each}: {amount}", _again("less", option))
    if match["kind"] == "Grp" and not match["run"] and (match["minutes"] or what == "time"):
        return _line("perhaps", f"the budget of {whose} is used up: {amount}", _ANOTHER)
    together = _TOGETHER.get(match["per"] or match["kind"], "all jobs of {}").format(whose)
    return _line("perhaps", f"{together} have reached their limit: {amount}", _ALONE)


def _line(by_itself: Outlook, meaning: str, advice: str = "") -> Explanation:
    return Explanation(reason="", meaning=meaning, advice=advice, by_itself=by_itself)


def _again(how_much: str, option: str) -> str:
    return f"`slurmddp cancel {JOB_ID}`, then submit with {how_much} ({option}), or with another -q or -A"


_ANOTHER: Final = f"ask for more, or `slurmddp cancel {JOB_ID}` and submit with another -A or -q"
_ALONE: Final = "it starts when some of them end, unless it asks for more than that alone; then submit it smaller"

_TOGETHER: Final[Mapping[str, str]] = {
    "PerUser": "your jobs in {}",
    "PerAccount": "the jobs of {} in its QOS",
    "Max": "your jobs in {}",
}

_RESOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "cpu": ("CPUs", "--cpus-per-task, --ntasks-per-node"),
    **dict.fromkeys(("memory", "mem"), ("memory", "--mem")),
    "node": ("nodes", "--nodes"),
    "gres": ("GPUs", "--gpus-per-node, --nodes"),
    "energy": ("energy", "--nodes"),
    "license": ("licenses", "--sbatch licenses=..."),
    "bb": ("burst buffer", "--sbatch bb=..."),
    "billing": ("billing units", "--nodes, --gpus-per-node"),
    **dict.fromkeys(("wallduration", "wall"), ("time", "--time")),
    **dict.fromkeys(("submitjobs", "submitjob"), ("jobs in the queue", "fewer jobs")),
    **dict.fromkeys(("jobs", "job"), ("running jobs", "fewer jobs")),
    "unknown": ("a resource", f"`scontrol show job {JOB_ID}` names what it asks for"),
}
"""The resource of a limit, and the options that ask for it."""

_LIMIT: Final = re.compile(
    rf"(?P<whose>QOS|Assoc)?(?P<kind>Grp|Max|Min)(?P<what>(?i:{'|'.join(_RESOURCES)}))(?P<run>Run)?(?P<minutes>Minutes)?"
    r"(?P<per>PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)


def _lines(by_itself: Outlook, *rows: tuple[str, str, str]) -> Iterator[tuple[str, Explanation]]:
    for names, meaning, advice in rows:
        for name in names.split("|"):
            yield name.lower(), _line(by_itself, meaning, advice)


_START: Final = f"`slurmddp diagnose {JOB_ID}` names those jobs"
_ELSEWHERE: Final = f"`scontrol update JobId={JOB_ID} Partition=...` moves it; `slurmddp cluster` lists partitions"
_RELEASE: Final = f"`scontrol release {JOB_ID}` lets it go on"
_CHANGE: Final = f"`scontrol update JobId={JOB_ID} {{}}` changes it, or `slurmddp cancel {JOB_ID}` and submit again"
_FIT: Final = f"`slurmddp cancel {JOB_ID}`, then submit what fits; `slurmddp cluster` shows what there is"
_ASK: Final = "ask those who run the cluster"

_REASONS: Final[Mapping[str, Explanation]] = dict(
    [
        *_lines(
            "yes",
            ("None|WaitingForScheduling", "Slurm has not looked at it yet", ""),
            ("Priority", "other jobs come before it", _START),
            ("Resources", "what it asks for is in use by other jobs", _START),
            ("Dependency", "it waits for another job", f"`scontrol show job {JOB_ID}` names it"),
            (
                "BeginTime",
                "its start time is not reached: that of --begin, or about two minutes after a requeue",
                f"after a requeue `slurmddp requeue {JOB_ID}` starts it in seconds",
            ),
            ("Cleaning", "what its last attempt left is being cleaned up", ""),
            ("Prolog", "what the cluster does before a job is still running", ""),
            ("Licenses", "a license it asks for is in use", ""),
            ("Reservation", "its reservation has not begun, or is full", "`scontrol show reservation` says when"),
            ("JobArrayTaskLimit", "as many tasks of its array run as may at a time", ""),
            ("BurstBufferResources", "the burst buffer is full", ""),
            ("BurstBufferStageIn", "its files are on their way to the burst buffer", ""),
            ("SchedDefer", "the cluster does not start jobs at once; the scheduler gets to it", ""),
            ("FedJobLock", "the clusters of the federation agree on who runs it", ""),
            ("PowerNotAvail|PowerReserved", "there is not enough power for it now", ""),
        ),
        *_lines(
            "perhaps",
            (
                "ReqNodeNotAvail",
                "a node it needs is down, drained, or reserved for something else",
                f"`scontrol show job {JOB_ID}` names it; submit without -w, or with less --time if it is reserved",
            ),
            ("PartitionDown", "its partition starts no jobs now", _ELSEWHERE),
            ("PartitionInactive", "its partition is closed", _ELSEWHERE),
            ("NodeDown", "a node it needs is down", _ELSEWHERE),
            ("FrontEndDown", "the machine that would start it is down", ""),
            ("SystemFailure", "Slurm, a file system or the network failed", _ASK),
            ("AssociationJobLimit|QOSJobLimit", "as many jobs run as its account or QOS may have", _ALONE),
            (
                "AssociationResourceLimit|QOSResourceLimit|AccountingPolicy",
                "a limit of its account or QOS is reached",
                _ANOTHER,
            ),
            ("AssociationTimeLimit|QOSTimeLimit", "the time of its account or QOS is used up", _ANOTHER),
            ("QOSUsageThreshold", "its account has used more than its QOS allows for now", _ANOTHER),
        ),
        *_lines(
            "no",
            ("PartitionConfig", "no node of its partition has what it asks for, or the partition forbids it", _FIT),
            ("PartitionNodeLimit", "its partition does not allow, or does not have, so many nodes", _FIT),
            (
                "PartitionTimeLimit",
                "its time limit is above the partition's",
                _CHANGE.format("TimeLimit=..."),
            ),
            ("MaxMemPerLimit", "it asks for more memory than its partition allows", _FIT),
            ("BadConstraints|Constraints", "no nodes are as it asks (-C, -w, -x)", _FIT),
            ("JobHeldUser", "it was submitted with --hold, or held by its owner", _RELEASE),
            (
                "JobHeldAdmin",
                "it is held by the cluster, often since a node failed to start it",
                f"{_RELEASE} if you may; else {_ASK}",
            ),
            ("JobHoldMaxRequeue", "it was requeued more often than the cluster allows", _RELEASE),
            (
                "DependencyNeverSatisfied",
                "the job it waits for did not end as it was to",
                f"`slurmddp cancel {JOB_ID}`, or `scontrol update JobId={JOB_ID} Dependency=` drops the condition",
            ),
            ("InvalidAccount|AccountNotAllowed", "its account may not be used there", _CHANGE.format("Account=...")),
            ("InvalidQOS|QOSNotAllowed", "its QOS may not be used there", _CHANGE.format("QOS=...")),
            ("ReservationDeleted", "its reservation is gone", _CHANGE.format("ReservationName=")),
            ("ReservationInvalid", "its reservation may not be used by it", _CHANGE.format("ReservationName=")),
            ("BurstBufferOperation", "the burst buffer failed", _ASK),
            ("DeadLine", "it can no longer end before its deadline", f"`slurmddp cancel {JOB_ID}`, then submit again"),
            ("JobLaunchFailure", "a node failed to start it", "see the log of the job; submit with -x NODE"),
            ("NonZeroExitCode|RaisedSignal", "its program failed", "see the log of the job"),
            ("TimeLimit", "its time limit is over", ""),
            ("OutOfMemory", "it used more memory than it had asked for", ""),
            ("InactiveLimit", "it did nothing for too long", ""),
        ),
    ]
)

_SENTENCES: Final[Mapping[str, Explanation]] = dict(
    [
        *_lines(
            "perhaps",
            (
                "Nodes required for job are DOWN",
                "too many nodes are down, drained, or kept for partitions that come first",
                f"{_START}; {_ELSEWHERE}",
            ),
            (
                "ReqNodeNotAvail, Reserved for maintenance",
                "it could run into a maintenance, which is announced",
                f"it may start before with less time: `scontrol update JobId={JOB_ID} TimeLimit=...`",
            ),
        ),
        *_lines(
            "no",
            (
                "launch failed requeued held|user env retrieval failed requeued held",
                "a node failed to start it, and Slurm holds it since",
                f"{_RELEASE}; if it comes again, `scontrol update JobId={JOB_ID} ExcNodeList=NODE` avoids the node",
            ),
            (
                "Job's account not permitted to use this partition",
                "its partition does not take its account",
                _CHANGE.format("Account=..."),
            ),
            (
                "Job's QOS not permitted to use this partition",
                "its partition does not take its QOS",
                _CHANGE.format("QOS=..."),
            ),
            (
                "launch failure limit exceeded requeued held",
                "Slurm has put it back into the queue so often that it holds it now",
                _RELEASE,
            ),
            ("job requeued in held state", "it was put back into the queue, and held", _RELEASE),
        ),
    ]
)
