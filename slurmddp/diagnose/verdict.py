"""Which of all that was seen is the cause. Pure.

Everything is put in order of time, and the first that is not a consequence is the cause; where nothing is, the first
rank that its launcher saw killed; then what took too long; then what Slurm says of the state; and else nobody knows.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from slurmddp.diagnose.catalogue import RULES
from slurmddp.diagnose.evidence import Scene
from slurmddp.diagnose.flight_recorder import Parting
from slurmddp.diagnose.job_states import SIGNALS, STOPS
from slurmddp.diagnose.log_reader import evidence
from slurmddp.diagnose.model import UNKNOWN, Diagnosis, Line, Sighting
from slurmddp.diagnose.rank_exits import Ending
from slurmddp.slurm.job_info import JobInfo

LINES: Final = 4
"""How many lines of evidence are shown."""

SHOWN_PEERS: Final = 2
SHOWN_ABSENT: Final = 8
_OF_JOB: Final = re.compile(r"(?:slurmstepd|\] error: ).*\*\*\* (?:JOB|STEP) (\d+)")
_LOST: Final = frozenset({"peer-lost", "aborted"})
_WAITED: Final = frozenset({"collective-timeout", "rank-missing", "mesh-failed"})
"""What ranks tell that waited for another."""
_VAGUE: Final = frozenset({"nccl-failed", "gave-up"})
"""Symptoms behind which another says more."""
_SUDDEN: Final = frozenset({"SIGKILL", "SIGBUS", "out of memory"})
"""What ends a rank whatever it printed last; a traceback that ended it may bring the others about."""
_BY_NODE: Final = frozenset({"OUT_OF_MEMORY", "NODE_FAIL"})
"""States in which ranks are killed, whatever they printed last."""
_UNCAUGHT: Final = 1
"""Python's status after an exception that nobody caught."""


def judge(job: JobInfo, scene: Scene) -> Diagnosis:
    """Return the diagnosis of one start of the ranks that failed, by its files alone."""
    own = (seen for seen in scene.sightings if not _is_of_another(job, seen))
    scene = replace(scene, sightings=tuple(_weighed(scene, job.state, seen) for seen in own))
    found = (
        _by_stop(scene)
        or _by_cause(scene)
        or _by_ending(scene)
        or _by_symptom(scene)
        or _by_silence(scene)
        or _unknown(scene)
    )
    host = found.host or scene.host_of(found.rank)
    return replace(
        found, job_id=job.job_id, name=job.name, state=job.state, attempt=scene.attempt, host=host,
        others=found.others or _others(scene, found.rank),
    )  # fmt: skip


def _is_of_another(job: JobInfo, seen: Sighting) -> bool:
    """Tell whether Slurm said it of another job, whose log was printed; a task's own number is not known here."""
    named = _OF_JOB.search(seen.line.text)
    return named is not None and job.job_id.isdecimal() and named[1] != job.job_id


def _weighed(scene: Scene, state: str, seen: Sighting) -> Sighting:
    """Return a cause that was only printed as far as its rank's end bears it out: it may have been caught and logged.

    It is certain where nothing was printed after it and the rank ended itself with Python's own status; a symptom where
    the first rank that ended was ended by a signal that does not come of it.
    """
    if seen.after is None or not seen.is_cause:
        return seen
    first, own = next(iter(scene.endings), None), _ending_of(scene, seen)
    sudden = first is not None and first.signal and (seen.after > 0 or first.signal in _SUDDEN)
    if first is not None and sudden and not _tells_of(seen, first):
        return replace(seen, rule=replace(seen.rule, role="symptom", sure="likely"))
    ended_itself = own is None or own.status == _UNCAUGHT
    if seen.after == 0 and ended_itself and state not in _BY_NODE:
        return seen
    return replace(seen, rule=replace(seen.rule, sure="likely"))


def _tells_of(seen: Sighting, end: Ending) -> bool:
    """Tell whether what was printed is about the same end."""
    rule = SIGNALS.get(end.signal)
    return rule is not None and rule.key == seen.rule.key


def _by_stop(scene: Scene) -> Diagnosis | None:
    """Return why all ranks were told to stop, which they did, saved."""
    if scene.stopped is None:
        return None
    what = scene.stopped.text.partition(" ")[2]
    cause = next((key for word, key in STOPS.items() if f"({word})" in what), "told-to-stop")
    return _made(
        cause, f"the ranks were {what}" if what.startswith("told") else what, evidence=(scene.stopped,), again=True,
        advice="submit its name again to go on from its last checkpoint",
    )  # fmt: skip


def _made(cause: str, what: str, **rest: object) -> Diagnosis:
    return Diagnosis(job_id="", name="", cause=cause, what=what, **rest)  # type: ignore[arg-type]  # passed on


def _by_cause(scene: Scene) -> Diagnosis | None:
    causes = _last_words([seen for seen in scene.sightings if seen.is_cause])
    special = [seen for seen in causes if not (seen.rule.general and seen.rule.sure == "likely")]
    first = _root(scene, special or causes) or _earliest(special or causes)
    return _of_sighting(scene, first) if first else None


def _last_words(causes: Sequence[Sighting]) -> list[Sighting]:
    """Return the causes without those that the same writer outlived, where it has said later what it ended of."""
    final = {seen.rank for seen in causes if seen.after == 0 and seen.rule.place == "exception"}
    return [seen for seen in causes if not (seen.after and seen.rule.place == "exception" and seen.rank in final)]


def _earliest(sightings: Sequence[Sighting]) -> Sighting | None:
    """Return the first in time; what nobody dated is Slurm's, or of one log, and comes before, in its order."""
    return min(sightings, key=lambda seen: seen.time if seen.time is not None else 0.0, default=None)


def _root(scene: Scene, causes: Sequence[Sighting]) -> Sighting | None:
    """Return what the rank said that torchrun saw fail first, where the lines themselves have no time."""
    number = next((ending.number for ending in scene.endings if ending.time is not None), None)
    return next((seen for seen in causes if number is not None and seen.rank == number and seen.time is None), None)


def _of_sighting(scene: Scene, seen: Sighting) -> Diagnosis:
    ending = _ending_of(scene, seen)
    rank = seen.rank if seen.rank is not None else ending.number if ending and not ending.is_node else None
    more = _said(scene, rank) if seen.rule.key == "exit-status" else _of_peers(scene)
    return _made(
        seen.rule.key,
        seen.what,
        sure=seen.rule.sure,
        rank=rank,
        host=seen.host or (ending.host if ending else ""),
        evidence=_lines([seen.line, *more]),
        others=_others(scene, rank, seen),
        advice=seen.advice,
        again=seen.rule.again,
    )


def _ending_of(scene: Scene, seen: Sighting) -> Ending | None:
    """Return how a launcher saw the same rank end; of one whose rank nobody told, the first that ended."""
    if seen.rank is not None:
        return next((end for end in scene.endings if end.number == seen.rank and not end.is_node), None)
    return scene.endings[0] if scene.endings and seen.rule.place == "exception" else _killed(scene, seen)


def _killed(scene: Scene, seen: Sighting) -> Ending | None:
    """Return the first that was killed, for what kills."""
    if seen.rule.key != "out-of-memory":
        return None
    killed = [end for end in scene.endings if end.signal in ("SIGKILL", "out of memory")]
    there = [end for end in killed if end.host == seen.host]
    return next(iter(there or killed), None)


def _by_ending(scene: Scene) -> Diagnosis | None:
    """Return that the first rank that its launcher saw end was killed, or ended without a word."""
    end = next(iter(scene.endings), None)
    if end is None:
        return None
    recorded = [seen for seen in scene.sightings if seen.rank == end.number and not end.is_node]
    if end.status is not None and (recorded or scene.failed or _symptoms(scene)):
        return None  # it ended itself, and has said of what
    if end.signal == "SIGTERM" and _was_stopped(scene, end):
        return None
    if end.signal == "SIGABRT" and _symptoms(scene):
        return None  # by its own watchdog, which has waited
    rule = SIGNALS.get(end.signal)
    if rule is None:
        return None
    rank = _rank_of(scene, end)
    consequences = _of_peers(scene)
    return _made(
        rule.key,
        f"{_who(rank, end.number, end.is_node)}: {rule.what.format(status=end.status)}",
        sure=rule.sure,
        rank=rank,
        host=end.host,
        evidence=_lines([evidence(end.line), *consequences]),
        advice=rule.advice,
        again=rule.again,
    )


def _symptoms(scene: Scene) -> list[Sighting]:
    return [seen for seen in scene.sightings if seen.rule.role == "symptom"]


def _was_stopped(scene: Scene, end: Ending) -> bool:
    """Tell whether Slurm had said before that it stops the step."""
    number = evidence(end.line).number
    return any(seen.rule.key == "step-ended" and 0 < seen.line.number < number for seen in scene.sightings)


def _rank_of(scene: Scene, end: Ending) -> int | None:
    """Return the rank that ended; of a node's only task that of its ranks which left no record."""
    if not end.is_node:
        return end.number
    here = [rank for rank in scene.silent if scene.host_of(rank) == end.host]
    return here[0] if len(here) == 1 else None


def _who(rank: int | None, number: int | None, is_node: bool) -> str:  # noqa: FBT001 - of the ending
    if rank is not None:
        return f"rank {rank}"
    return f"a rank of node {number}" if is_node else "a process"


def _by_symptom(scene: Scene) -> Diagnosis | None:
    symptoms = _symptoms(scene)
    first = _earliest([seen for seen in symptoms if seen.rule.key not in _VAGUE] or symptoms)
    if first is None:
        return None
    if scene.parting and first.rule.key in _WAITED:
        return _of_parting(scene, first, scene.parting)
    return _of_missing(scene, first)


def _of_parting(scene: Scene, waited: Sighting, parting: Parting) -> Diagnosis:
    """Return where the flight recorder saw the ranks part, for ranks that waited."""
    found = _of_sighting(scene, waited)
    lines = _lines([seen.line for seen in scene.sightings if seen.rule.key == waited.rule.key])
    count = len({seen.rank for seen in scene.sightings if seen.rule.key == waited.rule.key} - {parting.rank})
    others = _many(count, "waited in vain") if count else ""
    found = replace(found, rank=parting.rank, host=scene.host_of(parting.rank), evidence=lines, others=others)
    if not parting.differs:
        return replace(found, what=f"{parting.what}: it hangs, is slow, or took another path")
    known = next(rule for rule in RULES if rule.key == "collective-mismatch")
    return replace(found, cause=known.key, what=parting.what, sure="certain", advice=known.advice, again=False)


def _of_missing(scene: Scene, waited: Sighting) -> Diagnosis:
    """Return, for ranks that waited in vain, the one that did not come: it neither waited nor lost a peer."""
    found = _of_sighting(scene, waited)
    if waited.rank is not None and waited.rank >= scene.world > 0:
        what = f"ranks disagree on the world size: one waits for rank {waited.rank}, and there are {scene.world}"
        return replace(found, cause="world-size", what=what, rank=None, host="")
    came = {seen.rank for seen in scene.sightings if seen.rule.role == "symptom" or seen.rule.key in _LOST}
    absent = sorted(set(range(scene.world)) - came)
    named = "rank" in waited.rule.regex.groupindex
    if named or waited.rule.key not in _WAITED:
        return found
    if not 0 < len(absent) <= len(came - {None}):  # most are silent: they may have been ended before they could say so
        count = len({seen.rank for seen in scene.sightings if seen.rule.key == waited.rule.key} - {None})
        return replace(found, rank=None, host="", others=_many(count, "waited in vain") if count else "")
    names = f"rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent[:SHOWN_ABSENT]))}"
    names += f" and {len(absent) - SHOWN_ABSENT} more" if len(absent) > SHOWN_ABSENT else ""
    others = _many(len(came - {None}), "waited for {it}", it="it" if len(absent) == 1 else "them")
    return replace(found, what=f"{found.what}; {names} did not come", rank=absent[0], host="", others=others)


def _by_silence(scene: Scene) -> Diagnosis | None:
    """Return the rank that left no record, where others tell of nothing but its loss."""
    if not scene.silent or not scene.failed:
        return None
    rule, rank = SIGNALS["silent"], scene.silent[0]
    consequences = _of_peers(scene)
    return _made(
        rule.key, f"rank {rank}: {rule.what}", sure=rule.sure, rank=rank, evidence=_lines(consequences),
        advice=rule.advice, again=rule.again,
    )  # fmt: skip


def _unknown(scene: Scene) -> Diagnosis:
    first = _earliest([seen for seen in scene.sightings if seen.rule.role == "consequence"])
    lines = [first.line, *scene.abnormal] if first else scene.abnormal
    return _made(
        UNKNOWN,
        "the cause is not known",
        sure="unknown",
        rank=first.rank if first else None,
        evidence=_lines(lines),
        advice="the lines above are the first that look wrong" if lines else "look at its output, where that is known",
    )


def _said(scene: Scene, rank: int | None) -> list[Line]:
    """Return what a rank printed that looks wrong, where that is among the first such lines of all."""
    return [line for line in scene.abnormal if rank is None or line.file.endswith(f"/{rank}.out")]


def _of_peers(scene: Scene) -> list[Line]:
    """Return the first lines in which other ranks tell that they lost one."""
    return [seen.line for seen in scene.sightings if seen.rule.key in _LOST][:SHOWN_PEERS]


def _lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    return tuple(dict.fromkeys(lines))[:LINES]


def _others(scene: Scene, rank: int | None, cause: Sighting | None = None) -> str:
    """Return what the other ranks show, as one sentence."""
    same = {
        seen.rank for seen in scene.sightings
        if cause and seen.rule.key == cause.rule.key and seen.rank not in (None, rank)
    }  # fmt: skip
    lost = {seen.rank for seen in scene.sightings if seen.rule.key in _LOST and seen.rank is not None}
    lost -= {rank, *same}
    rest = scene.failed - len(same) - len(lost) - (1 if rank is not None and rank not in scene.silent else 0)
    parts = [
        _many(len(same), "failed the same way") if same else "",
        _many(len(lost), "then lost {its} peer") if lost else "",
        _many(rest, "{was} ended with {it}") if rest > 0 and (same or lost or rank is not None) else "",
    ]
    return "; ".join(filter(None, parts))


def _many(count: int, text: str, **given: str) -> str:
    one = count == 1
    words = {"its": "its" if one else "their", "was": "was" if one else "were", "it": "it", **given}
    return f"{count} {'rank' if one else 'ranks'} {text.format(**words)}"
