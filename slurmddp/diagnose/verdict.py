"""Which of all observations is the cause. Pure.

The first step that finds something decides: all ranks stopped as they were told to; the first observation in time that
can be a cause; the first rank that its launcher saw fail; the first time-out; a rank without a record.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final

from slurmddp.diagnose.evidence import Evidence, weaken
from slurmddp.diagnose.flight_recorder import Divergence
from slurmddp.diagnose.line_meanings import means
from slurmddp.diagnose.log_reader import make_evidence
from slurmddp.diagnose.rank_exits import RankExit
from slurmddp.diagnose.rule_types import EXIT_STATUS, RESUME, UNKNOWN, Diagnosis, Line, Observation, compile_regex
from slurmddp.diagnose.rules import causes_with, end_causes, load_rules
from slurmddp.slurm.job_info import JobInfo
from slurmddp.text import count, list_some

SHOWN_LINES: Final = 4  # how many lines of evidence are shown
SHOWN_PEERS: Final = 2
SHOWN_ABSENT: Final = 8
STOP_REASONS: Final = ("time limit", "preempted", "requeued", "cancelled", "script killed")
"""What rank 0's record says in brackets of being told to stop; with `-` for the blank it is the cause."""
_OTHER_JOB: Final = compile_regex(r"(?:slurmstepd|\] error: ).*\*\*\* (?:JOB|STEP) (\d+)")
_MOST_AFTER_HANG: Final = 3  # a job that hangs prints at most so many ordinary lines
_OUT_OF_MEMORY: Final = "out-of-memory"  # the kernel killed a process: the others say no more than that they lost it
_EXTERNAL_ENDS: Final = frozenset({"SIGKILL", "SIGBUS", "out of memory"})  # no exception of the rank causes them
_EXTERNAL_STATES: Final = frozenset({"OUT_OF_MEMORY", "NODE_FAIL"})  # the last lines of ranks explain nothing
_UNCAUGHT_STATUS: Final = 1  # Python's exit status after an uncaught exception


def judge(job: JobInfo, evidence: Evidence) -> Diagnosis:
    """Return the diagnosis of an attempt that failed, from its evidence alone."""
    said = [(seen, _OTHER_JOB.search(seen.line.text)) for seen in evidence.observations]  # by another job's log, too
    own = [seen for seen, named in said if named is None or named[1] == job.job_id or not job.job_id.isdecimal()]
    signal = _find_unexplained_signal(evidence)
    evidence = replace(evidence, observations=tuple(_weigh_cause(evidence, job.state, signal, seen) for seen in own))
    found = (
        _judge_stop(evidence)
        or _judge_causes(evidence)
        or _judge_exits(evidence)
        or _judge_symptoms(evidence)
        or _judge_silence(evidence)
        or _report_unknown(evidence)
    )
    others = found.others or _describe_others(evidence, found.rank)
    if found.cause not in (UNKNOWN, *causes_with("by Slurm")) and (
        job.state == "TIMEOUT" or _observations_of(evidence, {"time-limit"})
    ):
        others = "; ".join(filter(None, (others, "the job then hung, or ran on, until its time limit")))
    return replace(
        found,
        job_id=job.job_id,
        name=job.name,
        state=job.state,
        attempt=evidence.attempt,
        host=found.host or evidence.host_of(found.rank),
        others=others,
    )


def _find_unexplained_signal(evidence: Evidence) -> str:
    """Return the signal that ended the first rank; empty if a person, or the end of the step, explains it."""
    first = next(iter(evidence.exits), None)
    if first is None or (first.signal == "SIGTERM" and evidence.having("by hand")):
        return ""
    number = make_evidence(first.line).number
    with_step = any(0 < one.line.number < number for one in _observations_of(evidence, {"step-ended"}))
    return "" if with_step else first.signal


def _weigh_cause(evidence: Evidence, state: str, signal: str, seen: Observation) -> Observation:
    """Lower the weight of a cause that was only printed, because the program may have caught and logged it.

    It stays certain if nothing was printed after it and the rank exited with Python's own status. It becomes a symptom
    if the first rank that ended was ended by a `signal` that the cause does not explain. Else it becomes likely.
    """
    if seen.lines_after is None or not seen.is_cause:
        return seen
    if signal and (seen.lines_after > 0 or signal in _EXTERNAL_ENDS):
        rule = end_causes().get(signal)
        explains = signal in seen.rule.signals or (rule and rule.key == seen.rule.key)
        if not explains or means(seen.line.text, "warning"):  # it has another cause
            return weaken(seen)
    own = _find_exit(evidence, seen)
    exited_itself = own is None or own.status == _UNCAUGHT_STATUS
    is_sure = seen.lines_after == 0 and exited_itself and state not in _EXTERNAL_STATES
    return seen if is_sure else replace(seen, sure="likely")


def _judge_stop(evidence: Evidence) -> Diagnosis | None:
    """Return why all ranks were told to stop, if they were."""
    if evidence.stop_record is None:
        return None
    what = evidence.stop_record.text
    return Diagnosis(
        cause=next((word.replace(" ", "-") for word in STOP_REASONS if f"({word})" in what), "told-to-stop"),
        what=f"the ranks were {what}" if what.startswith("told") else what,
        evidence=(evidence.stop_record,),
        again=True,
        advice=RESUME,
    )


def _judge_causes(evidence: Evidence) -> Diagnosis | None:
    causes = [seen for seen in evidence.observations if seen.is_cause]
    weaker = {key for seen in causes for key in seen.rule.beats}
    is_out_of_memory = any(seen.rule.key == _OUT_OF_MEMORY for seen in causes)
    causes = [seen for seen in causes if seen.rule.key not in weaker]
    if is_out_of_memory:
        causes = [seen for seen in causes if not (seen.rule.general and seen.rule.place == "exception")]
    specific = [seen for seen in causes if not (seen.rule.general and seen.sure == "likely")]
    if all(means(seen.line.text, "script") for seen in specific):  # a script runs on behind a program that failed
        specific = causes
    if specific and all(seen.has("by hand") for seen in specific):
        after = min(seen.lines_after or 0 for seen in specific)
        last = [seen for seen in evidence.observations if seen.rule.key not in weaker and _is_last(seen, after)]
        specific = [seen for seen in evidence.observations if seen in specific or seen in last]
    number = next((end.number for end in evidence.exits if end.time is not None), None)  # that torchrun saw fail first
    of_first = (seen for seen in specific or causes if number is not None and seen.rank == number)
    root = next((seen for seen in of_first if seen.time is None or not evidence.attempt), None)
    first = root or _find_earliest(specific or causes)
    return _tell_last(_diagnose_observation(evidence, first), first, causes[-1]) if first else None


def _tell_last(found: Diagnosis, first: Observation, last: Observation) -> Diagnosis:
    """Return the diagnosis with what the output ends with, if that is another exception: it may be of a later start."""
    is_later = last.line.file == first.line.file and last.line.number > first.line.number
    is_other = last.what != first.what and (last.rule.general or last.rule.key != first.rule.key)
    if not (is_later and is_other) or last.rank is not None or last.rule.place != "exception":
        return found
    return replace(found, sure="likely", others="; ".join(filter(None, (found.others, f"at the end: {last.what}"))))


def _is_last(seen: Observation, after: int) -> bool:
    """Return whether a job failed or hung there, for all that is known, and was ended by hand, `after` lines follow."""
    is_near = not seen.ran_on and (seen.lines_after or 0) - after <= _MOST_AFTER_HANG
    return is_near and (seen.is_cause or seen.has("hung"))


def _find_earliest(observations: Sequence[Observation]) -> Observation | None:
    """Return the first in time; those without a time come first, in their order: they are Slurm's, or of one log."""
    return min(observations, key=lambda seen: seen.time if seen.time is not None else 0.0, default=None)


def _diagnose_observation(evidence: Evidence, seen: Observation) -> Diagnosis:
    end = _find_exit(evidence, seen)
    rank = seen.rank if seen.rank is not None else end.number if end and not end.is_node else None
    suspicious = [line for line in evidence.suspicious_lines if rank is None or line.file.endswith(f"/{rank}.out")]
    more = suspicious if seen.rule.key in (EXIT_STATUS, "tracker-ended") else _peer_lines(evidence)
    return seen.rule.make_diagnosis(
        seen.what,
        sure=seen.sure,
        rank=rank,
        host=seen.host or (end.host if end else ""),
        evidence=_select_lines([seen.line, *([seen.frame] if seen.frame else []), *more]),
        others=_describe_others(evidence, rank, seen),
    )


def _find_exit(evidence: Evidence, seen: Observation) -> RankExit | None:
    """Return the exit of the rank of an observation; if its rank is not known, the exit that fits best."""
    if seen.rank is not None:
        return next((end for end in evidence.exits if end.number == seen.rank and not end.is_node), None)
    if seen.rule.place == "exception":
        return next(iter(evidence.exits), None)
    signals = {signal for signal, rule in end_causes().items() if rule.key == seen.rule.key}
    signals |= {"SIGKILL"} if seen.rule.key == _OUT_OF_MEMORY else set()
    ended = [end for end in evidence.exits if end.signal in signals]
    return next((end for end in ended if end.host == seen.host), next(iter(ended), None))


def _judge_exits(evidence: Evidence) -> Diagnosis | None:
    """Return how the first rank ended that its launcher saw fail, if no observation explains it better."""
    end = next(iter(evidence.exits), None)
    if end is None:
        return None
    has_symptoms = bool(_symptoms(evidence))
    observed = any(seen.rank == end.number and not end.is_node for seen in evidence.observations)
    rule = end_causes().get(end.signal or "status")
    known = (seen for seen in evidence.observations if seen.rule.role == "cause" and not seen.rule.general)
    is_fatal = any(seen.lines_after == 0 for seen in known)
    told = {"cancelled"} if end.signal == "SIGKILL" else {"cancelled", "step-ended", "step-cancelled"}
    announced = (seen.line.number for seen in _observations_of(evidence, told))
    if (
        rule is None
        or (end.status is not None and (observed or evidence.failed_count or has_symptoms))  # an observation says why
        or (end.signal == "SIGKILL" and is_fatal)  # the launcher ended the others
        or (end.signal in ("SIGTERM", "SIGKILL") and any(0 < at < make_evidence(end.line).number for at in announced))
        or (end.signal in ("SIGABRT", "SIGTERM") and has_symptoms)  # torch's watchdog, or a launcher, ended it
    ):
        return None
    rank = end.number
    if end.is_node:  # its only rank without a record
        silent = [rank for rank in evidence.silent_ranks if evidence.host_of(rank) == end.host]
        rank = silent[0] if len(silent) == 1 else None
    who = f"rank {rank}" if rank is not None else f"a rank of node {end.number}" if end.is_node else "a process"
    what, lines = f"{who}: {rule.what.format(status=end.status)}", [make_evidence(end.line), *_peer_lines(evidence)]
    return rule.make_diagnosis(what, rank=rank, host=end.host, evidence=_select_lines(lines))


def _observations_of(evidence: Evidence, keys: Container[str]) -> list[Observation]:
    return [seen for seen in evidence.observations if seen.rule.key in keys]


def _symptoms(evidence: Evidence) -> list[Observation]:
    return [seen for seen in evidence.observations if seen.role == "symptom"]


def _vagueness(seen: Observation) -> int:
    """Return 0 for a symptom that says what happened, more for one that counts only if there is no such symptom."""
    vagueness = 2 + (seen.rule.place == "end") if seen.rule.general else int(seen.has("vague"))
    return vagueness + 3 * seen.ran_on


def _judge_symptoms(evidence: Evidence) -> Diagnosis | None:
    symptoms = _symptoms(evidence)
    first = _find_earliest([seen for seen in symptoms if _vagueness(seen) == min(map(_vagueness, symptoms))])
    if first is None or (first.ran_on and evidence.having("lost peer")):
        return None
    raised = (seen for seen in symptoms if seen.rule.place == "exception" and not seen.has("hung", "vague"))
    before = (seen for seen in raised if not seen.ran_on and 0 < seen.line.number < first.line.number)
    if first.has("waited") and not evidence.attempt and (failed := next(before, None)):  # others waited for it
        return _diagnose_observation(evidence, failed)
    if evidence.divergence and first.has("waited"):
        return _diagnose_divergence(evidence, first, evidence.divergence)
    return _diagnose_missing_rank(evidence, first)


def _diagnose_divergence(evidence: Evidence, waited: Observation, divergence: Divergence) -> Diagnosis:
    """Return which rank diverged by the flight recorder, while the others waited."""
    same = _observations_of(evidence, {waited.rule.key})
    found = replace(
        _diagnose_observation(evidence, waited),
        rank=divergence.rank,
        host=evidence.host_of(divergence.rank),
        evidence=_select_lines([seen.line for seen in same]),
        others=_describe_waiting(len({seen.rank for seen in same} - {divergence.rank})),
    )
    if not divergence.differs:
        return replace(found, what=f"{divergence.what}: it hangs, is slow, or went another way")
    rule = next(rule for rule in load_rules().own if rule.key == "collective-mismatch")
    return replace(found, cause=rule.key, what=divergence.what, sure="certain", advice=rule.advice, again=False)


def _diagnose_missing_rank(evidence: Evidence, waited: Observation) -> Diagnosis:
    """Return which rank the others waited for: one that neither waited itself nor lost a peer."""
    found = _diagnose_observation(evidence, waited)
    differ = ""
    if waited.rank is not None and waited.rank >= evidence.world_size > 0:
        differ = f"one waits for rank {waited.rank}, and there are {evidence.world_size}"
    told = (waited.groups.get(name, "") for name in ("joined", "size"))
    joined, size = (int(number) if number.isdecimal() else 0 for number in told)
    if joined > size:
        differ = f"{joined} reached the rendezvous, where {size} were meant to"
    if differ:
        what = f"ranks disagree on the world size: {differ}"
        return replace(found, cause="world-size", what=what, rank=None, host="")
    if "rank" in waited.groups or not waited.has("waited"):
        return found
    came = {seen.rank for seen in [*_symptoms(evidence), *evidence.having("lost peer")]} - {None}
    absent = sorted(set(range(evidence.world_size)) - came)
    if not 0 < len(absent) <= len(came):  # most ranks print nothing if they are ended before they time out
        same = {seen.rank for seen in _observations_of(evidence, {waited.rule.key})}
        return replace(found, rank=None, host="", others=_describe_waiting(len(same - {None})))
    names = f"rank{'s' * (len(absent) > 1)} {list_some([*map(str, absent)], SHOWN_ABSENT)}"
    others = f"{count(len(came), 'rank')} waited for {'it' if len(absent) == 1 else 'them'}"
    return replace(found, what=f"{found.what}; {names} did not come", rank=absent[0], host="", others=others)


def _judge_silence(evidence: Evidence) -> Diagnosis | None:
    """Return the first rank without a record, if the others say no more than that they lost it."""
    if not evidence.silent_ranks or not evidence.failed_count:
        return None
    rule, rank = end_causes()["silent"], evidence.silent_ranks[0]
    return rule.make_diagnosis(f"rank {rank}: {rule.what}", rank=rank, evidence=_select_lines(_peer_lines(evidence)))


def _report_unknown(evidence: Evidence) -> Diagnosis:
    steps = [seen.line for seen in _observations_of(evidence, {"step-cancelled"})]
    if steps and not evidence.having("lost peer"):
        return (rule := end_causes()["step"]).make_diagnosis(rule.what, evidence=_select_lines(steps))
    first = _find_earliest([seen for seen in evidence.observations if seen.role == "consequence"])
    lines = [first.line, *evidence.suspicious_lines] if first else evidence.suspicious_lines
    what, advice = "the cause is not known", "read the lines above: they are the first that look wrong"
    if first and first.has("lost peer"):
        what += ": a process lost its peer, which had failed before it, or which the network cut off"
        advice = "read the output of the other ranks: the first that failed says why"
    return Diagnosis(
        cause=UNKNOWN,
        what=what,
        sure="unknown",
        evidence=_select_lines(lines),
        advice=advice if lines else "read the job's output",
    )


def _peer_lines(evidence: Evidence) -> list[Line]:
    """Return the first lines in which other ranks say that they lost a peer."""
    return [seen.line for seen in evidence.having("lost peer")][:SHOWN_PEERS]


def _select_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    return tuple(dict.fromkeys(lines))[:SHOWN_LINES]


def _describe_others(evidence: Evidence, rank: int | None, cause: Observation | None = None) -> str:
    """Return what the other ranks show, in one sentence."""
    same = {seen.rank for seen in _observations_of(evidence, {cause.rule.key} if cause else ())} - {None, rank}
    lost = {seen.rank for seen in evidence.having("lost peer")} - {None, rank} - same
    rest = evidence.failed_count - len(same) - len(lost) - (rank is not None and rank not in evidence.silent_ranks)
    parts = [f"{count(len(same), 'rank')} failed the same way"] if same else []
    if lost:
        parts.append(f"{count(len(lost), 'rank')} then lost {'its' if len(lost) == 1 else 'their'} peer")
    if rest > 0 and (parts or rank is not None):
        parts.append(f"{count(rest, 'rank')} {'was' if rest == 1 else 'were'} ended with it")
    return "; ".join(parts)


def _describe_waiting(ranks: int) -> str:
    return f"{count(ranks, 'rank')} waited in vain" if ranks else ""
