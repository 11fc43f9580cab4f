"""One start of a run's ranks, by what the ranks and the batch script left. Reads the run's folder.

Of thousands of ranks the records choose whose output is read: of those that failed first, and of those that left none.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.diagnose import flight
from slurmddp.diagnose.catalogue import find
from slurmddp.diagnose.endings import endings
from slurmddp.diagnose.reading import Raw, evidence, labelled, read, shown_path
from slurmddp.diagnose.scene import Scene, abnormal, at, modified, of_exceptions, of_lines, of_tracebacks, sighting
from slurmddp.diagnose.tracebacks import chains
from slurmddp.diagnose.values import Line, Rule, Sighting
from slurmddp.errors import UsageError
from slurmddp.hostlist import expand
from slurmddp.outcome import DONE, STOPPED
from slurmddp.rundir import LOCAL, RunDir

READ_RANKS: Final = 24
"""How many ranks' output is read, of those that failed and of those without a record each."""
RANK_BYTES: Final = 2**16
"""How much of the head, and of the tail, of the output of a rank that has said itself what it ended of."""
READ_FLIGHTS: Final = 64
READ_NODES: Final = 64
_RECORD = re.compile(r"(\d{1,9}) (?:rank \d+ on (\S+): )?(.*)")
_FILE = re.compile(r"(\d{1,6})\.(end|out|error\.json|begin)|(flight)\.(\d{1,6})|(node)-(\d{1,6})\.out")
"""Whose file it is; no job has a million ranks, and what has a longer number is somebody's own."""
_BEGIN = re.compile(r"attempt (\d+\.\d+), on (\S+), output of the ranks in")
_RETOLD = re.compile(r"slurmddp: (?:job \S+, attempt \S+, ended with status|back into the queue: rank)")
"""The script's own words for what a rank has said already."""
_SAME_CHARS: Final = 200


@dataclass(frozen=True)
class Record:
    """How a rank said that it ended."""

    rank: int
    status: int
    host: str
    reason: str
    path: Path
    time: float

    @property
    def failed(self) -> bool:
        """Whether it ended badly."""
        return self.status not in (DONE, STOPPED)


def scene(run: RunDir, job_id: str, attempt: str) -> Scene:
    """Return what is left of one start of the ranks."""
    folder = run.attempt(job_id, attempt)
    files = _files(folder)
    records = _records(folder, files.get("end", ()))
    said = said_by_script(run, job_id, attempt)
    nodes = [line for node in files.get("node", ())[:READ_NODES] for line in read(folder / f"node-{node}.out")]
    world = 1 + max((rank for kind in ("end", "out", "error.json") for rank in files.get(kind, ())), default=-1)
    recorded = {record.rank: record.host for record in records if record.host}
    hosts = _hosts(said, world, tuple(dict.fromkeys(recorded.values())) if job_id.startswith(LOCAL) else ()) | recorded
    silent = tuple(sorted(set(range(world)) - {record.rank for record in records}))
    console = read(run.rank_log(job_id, attempt, 0))
    told = [*said, *nodes, *(line for line in console if line.text.startswith("torchrun: "))]
    return Scene(
        attempt=attempt,
        sightings=tuple(_sightings(run, job_id, attempt, records, silent, hosts, (said, nodes))),
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


def said_by_script(run: RunDir, job_id: str, attempt: str = "") -> list[Raw]:
    """Return the batch script's own log, or what it says of one start of the ranks."""
    lines = read(run.batch_log(job_id))
    starts = [(index, match[1]) for index, line in enumerate(lines) if (match := _BEGIN.search(line.text))]
    own = [number for number, (_, name) in enumerate(starts) if name == attempt]
    if not attempt or not own:
        return [] if attempt else lines
    after = own[-1] + 1
    return lines[starts[own[-1]][0] : starts[after][0] if after < len(starts) else len(lines)]


def script_scene(run: RunDir, job_id: str) -> Scene:
    """Return what is left of a job whose ranks never started."""
    lines = said_by_script(run, job_id)
    about = modified(run.batch_log(job_id)) or 0.0
    found = [*of_tracebacks(lines, rank=None, time=None), *of_lines(lines, about=about, rank=None)]
    return Scene(sightings=tuple(found), endings=tuple(endings(lines)), abnormal=abnormal(lines))


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


def _records(folder: Path, ranks: Sequence[int]) -> list[Record]:
    """Return the records, the oldest first."""
    made = [record for rank in ranks if (record := _record(folder / f"{rank}.end", rank))]
    return sorted(made, key=lambda record: record.time)


def _stopped(records: Sequence[Record]) -> Line | None:
    told = next((record for record in records if record.rank == 0 and record.status == STOPPED), None)
    return Line(shown_path(told.path), 1, f"{STOPPED} {told.reason}") if told else None


def _record(path: Path, rank: int) -> Record | None:
    """Return a rank's record; None for one that is torn, whose line has no end, as for one that is not there."""
    with suppress(OSError):
        text = path.read_text("utf-8", "replace")
        match = _RECORD.match(text) if text.endswith("\n") else None
        if match:
            return Record(rank, int(match[1]), match[2] or "", match[3].strip(), path, path.stat().st_mtime)
    return None


def _hosts(said: Sequence[Raw], world: int, nodes: tuple[str, ...]) -> dict[int, str]:
    """Return each rank's node, by the script's words or the given ones: as many ranks on each, in order."""
    match = next((found for line in said if (found := _BEGIN.search(line.text))), None)
    try:
        nodes = expand(match[2]) if match else nodes
    except UsageError:
        return {}
    return {rank: nodes[rank * len(nodes) // world] for rank in range(world)} if nodes and world >= len(nodes) else {}


def _sightings(
    run: RunDir,
    job_id: str,
    attempt: str,
    records: Sequence[Record],
    silent: Sequence[int],
    hosts: Mapping[int, str],
    told: Sequence[Sequence[Raw]],
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
    for lines in told:
        said = [line for line in lines if not _RETOLD.search(line.text)]
        about = modified(said[0].path) if said else None
        yield from of_lines(said, about=about or 0.0, rank=None)


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


def _of_record(run: RunDir, job_id: str, attempt: str, record: Record) -> Iterator[Sighting]:
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


def _parting(folder: Path, ranks: Sequence[int]) -> flight.Parting | None:
    paths = {folder / f"flight.{rank}": rank for rank in ranks[:READ_FLIGHTS]}
    return flight.parting({paths[path]: held for path, held in flight.load(list(paths)).items()})
