"""One start of a run's ranks, by what the ranks and the batch script left. Reads the run's folder.

Of thousands of ranks the records choose whose output is read: of those that failed first, and of those that left none.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp.diagnose import flight_recorder
from slurmddp.diagnose.catalogue import find
from slurmddp.diagnose.evidence import Scene, abnormal, at, modified, of_exceptions, of_lines, of_tracebacks, sighting
from slurmddp.diagnose.log_reader import Raw, evidence, labelled, read, shown_path
from slurmddp.diagnose.model import Line, Rule, Sighting
from slurmddp.diagnose.rank_exits import endings
from slurmddp.diagnose.tracebacks import chains
from slurmddp.errors import UsageError
from slurmddp.exit_codes import DONE, STOPPED
from slurmddp.runs.exit_records import BatchRecord, ExitRecord, read_records
from slurmddp.runs.history import Event
from slurmddp.runs.layout import LOCAL, RunDir
from slurmddp.runs.supervision import LogPart, log_parts
from slurmddp.slurm.hostlist import expand

READ_RANKS: Final = 24
"""How many ranks' output is read, of those that failed and of those without a record each."""
RANK_BYTES: Final = 2**16
"""How much of the head, and of the tail, of the output of a rank that has said itself what it ended of."""
READ_FLIGHTS: Final = 64
READ_NODES: Final = 64
_FILE = re.compile(r"(\d{1,6})\.(end|out|error\.json|begin)|(flight)\.(\d{1,6})|(node)-(\d{1,6})\.out")
"""Whose file it is; no job has a million ranks, and what has a longer number is somebody's own."""
_OWN = re.compile(r"\d{4}-\d\d-\d\dT[\d:]{8}[+-]\d{4} slurmddp: ")
"""What the supervisor's lines in the batch log begin with: its events say the same."""
_DECISIONS: Final = frozenset({"requeue", "fenced", "job_end"})
_SAME_CHARS: Final = 200


def scene(run: RunDir, job_id: str, attempt: str, events: Sequence[Event]) -> Scene:
    """Return what is left of one start of the ranks; `events` are the job's."""
    folder = run.attempt(job_id, attempt)
    files, records, own = _files(folder), read_records(folder), _of_attempt(events, attempt)
    said = _batch_lines(run, job_id, log_parts(events).get(attempt, LogPart()))
    nodes = [line for node in files.get("node", ())[:READ_NODES] for line in read(folder / f"node-{node}.out")]
    world = 1 + max((rank for kind in ("end", "out", "error.json") for rank in files.get(kind, ())), default=-1)
    recorded = {record.rank: record.host for record in records if record.host}
    hosts = _hosts(own, world, tuple(dict.fromkeys(recorded.values())) if job_id.startswith(LOCAL) else ()) | recorded
    silent = tuple(sorted(set(range(world)) - {record.rank for record in records}))
    console = read(run.rank_log(job_id, attempt, 0))
    told = [*said, *nodes, *(line for line in console if line.text.startswith("torchrun: "))]
    found = [
        *_sightings(run, job_id, attempt, records, silent, hosts),
        *(seen for lines in (said, nodes) for seen in _of_log(lines)),
        *_of_decisions(run, own),
    ]
    return Scene(
        attempt=attempt,
        sightings=tuple(found),
        endings=tuple(endings(told, tasks_are_nodes="node" in files)),
        world=world,
        hosts=hosts,
        silent=silent,
        failed=sum(1 for record in records if record.failed),
        ended_well=any(record.rank == 0 and record.status == DONE for record in records),
        stopped=_stopped(records),
        parting=_parting(folder, files.get("flight", ())),
        abnormal=abnormal([*said, *nodes]) if said or nodes else abnormal(console),
    )


def script_scene(run: RunDir, job_id: str, events: Sequence[Event], failure: BatchRecord | None) -> Scene:
    """Return what is left of a job whose ranks never started, or whose set-up then failed, as `failure` tells."""
    written = f"{failure.status} {failure.reason}" if failure else ""
    started = any(event.kind == "attempt_start" for event in events)
    lines = [] if started else [line for line in _batch_lines(run, job_id, LogPart()) if line.text != written]
    found = [*of_tracebacks(lines, rank=None, time=None), *_of_log(lines), *_of_decisions(run, events)]
    if failure:
        line = Line(shown_path(failure.path), 1, written)
        found += _of_words(failure.reason, line, failure.time)
    return Scene(sightings=tuple(found), endings=tuple(endings(lines)), abnormal=abnormal(lines))


def _batch_lines(run: RunDir, job_id: str, part: LogPart) -> list[Raw]:
    """Return the lines of a part of the batch log, without the supervisor's."""
    lines = read(run.batch_log(job_id), begin=part.begin, end=part.end)
    return [line for line in lines if not _OWN.match(line.text)]


def _of_attempt(events: Sequence[Event], attempt: str) -> list[Event]:
    """Return the events of a job from the last start of that name up to the next start; none without a start."""
    own: list[Event] = []
    inside = False
    for event in events:
        if event.kind == "attempt_start":
            inside = event.attempt == attempt
            own = [] if inside else own
        if inside:
            own.append(event)
    return own


def _of_decisions(run: RunDir, events: Sequence[Event]) -> Iterator[Sighting]:
    """Yield what the supervisor's reasons tell, but for what they repeat of the ranks' own."""
    repeated = ""
    for event in events:
        reason = event.text("reason")
        if event.kind == "attempt_end":
            repeated = reason
        elif event.kind in _DECISIONS:
            line = Line(shown_path(run.events), 0, reason)
            yield from _of_words(reason.replace(repeated, "") if repeated else reason, line, event.time)


def _of_words(text: str, line: Line, time: float) -> Iterator[Sighting]:
    if known := find(text):
        yield sighting(*known, line, time=time, rank=None)


def _of_log(lines: Sequence[Raw]) -> Iterator[Sighting]:
    about = modified(lines[0].path) if lines else None
    return of_lines(lines, about=about or 0.0, rank=None)


def _files(folder: Path) -> dict[str, list[int]]:
    """Return the ranks, or nodes, that have a file of each kind; in order."""
    found: dict[str, list[int]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if match := _FILE.fullmatch(entry.name):
                number, kind, *rest = match.groups()
                kind, number = (kind, number) if kind else (rest[0] or rest[2], rest[1] or rest[3])
                found.setdefault(kind, []).append(int(number))
    return {kind: sorted(numbers) for kind, numbers in found.items()}


def _stopped(records: Sequence[ExitRecord]) -> Line | None:
    told = next((record for record in records if record.rank == 0 and record.status == STOPPED), None)
    return Line(shown_path(told.path), 1, f"{STOPPED} {told.reason}") if told else None


def _hosts(events: Sequence[Event], world: int, nodes: tuple[str, ...]) -> dict[int, str]:
    """Return each rank's node, by the start on record or the given ones: as many ranks on each, in order."""
    start = next((event for event in events if event.kind == "attempt_start"), None)
    try:
        nodes = expand(start.text("nodes")) if start else nodes
    except UsageError:
        return {}
    return {rank: nodes[rank * len(nodes) // world] for rank in range(world)} if nodes and world >= len(nodes) else {}


def _sightings(
    run: RunDir,
    job_id: str,
    attempt: str,
    records: Sequence[ExitRecord],
    silent: Sequence[int],
    hosts: Mapping[int, str],
) -> Iterator[Sighting]:
    failed = [record for record in records if record.failed]
    chosen, rest = failed[:READ_RANKS], failed[READ_RANKS:]
    for record in chosen:
        yield from _of_record(run, job_id, attempt, record)
    for record in rest:
        rule, found = _told(record.reason)
        line = Line(shown_path(record.path), 1, record.reason)
        yield sighting(rule, found, line, time=record.time, rank=record.rank, host=record.host)
    for rank in silent[:READ_RANKS]:
        yield from _of_silent(run, job_id, attempt, rank, hosts.get(rank, ""))


def _of_silent(run: RunDir, job_id: str, attempt: str, rank: int, host: str) -> list[Sighting]:
    """Return what the error file, or the output, of a rank without a record tells."""
    path = run.rank_log(job_id, attempt, rank)
    lines, time = labelled(read(path)), modified(path)
    error = run.rank_error(job_id, attempt, rank)
    if known := of_exceptions(texts := _texts(error)):
        number, rule, groups = known
        line = _place(lines, texts[number]) or Line(shown_path(error), 0, texts[number])
        return [sighting(rule, groups, line, time=modified(error), rank=rank, host=host)]
    found = [*of_tracebacks(lines, rank=rank, time=time, host=host)]
    return at([*found, *of_lines(lines, about=time or 0.0, rank=rank, host=host)], time)


def _of_record(run: RunDir, job_id: str, attempt: str, record: ExitRecord) -> Iterator[Sighting]:
    """Yield what a rank's own record tells; of one that lost its peer, or waited, its output too."""
    error = run.rank_error(job_id, attempt, record.rank)
    texts, time = _texts(error) or [record.reason], modified(error) or record.time
    number, rule, found = of_exceptions(texts) or (0, *_told(record.reason))
    lines = labelled(read(run.rank_log(job_id, attempt, record.rank), head=RANK_BYTES, tail=RANK_BYTES))
    line = _place(lines, texts[number]) or Line(shown_path(record.path), 1, record.reason)
    yield sighting(rule, found, line, time=time, rank=record.rank, host=record.host)
    if rule.role != "cause":
        seen = of_lines(lines, about=time, rank=record.rank, host=record.host)
        yield from at([other for other in seen if other.rule.key != rule.key], time)


def _told(reason: str) -> tuple[Rule, Mapping[str, str]]:
    """Return what a reason of our own tells, which is no exception."""
    known = find(reason, "exception") or find(f"Error: {reason}", "exception")
    if known is None:
        raise ValueError(f"no rule for {reason!a}: the general one of our own errors is missing")
    return known


def _texts(path: Path) -> list[str]:
    """Return the exceptions of an error file, the first raised at the head: each in its first line."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        message = json.loads(path.read_bytes())["message"]
        stack = [Raw(path, 0, line) for line in str(message["extraInfo"]["py_callstack"]).splitlines()]
        last = chains(stack)[-1:]
        return [line.text for chain in last for line in chain.last] or [str(message["message"]).split("\n")[0]]
    return []


def _place(lines: Sequence[Raw], text: str) -> Line | None:
    """Return where a rank's output has the exception's line."""
    wanted = text[:_SAME_CHARS]
    return next((evidence(line) for line in reversed(lines) if line.text.startswith(wanted)), None)


def _parting(folder: Path, ranks: Sequence[int]) -> flight_recorder.Parting | None:
    paths = {folder / f"flight.{rank}": rank for rank in ranks[:READ_FLIGHTS]}
    return flight_recorder.parting({paths[path]: held for path, held in flight_recorder.load(list(paths)).items()})
