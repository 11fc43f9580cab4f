"""The evidence of one attempt, from its ranks, its launcher and the supervisor. Reads the run's folder.

With thousands of ranks, the exit records decide whose output is read: that of the ranks that failed first, and that of
the ranks that left no record.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from slurmddp.diagnose import evidence, flight_recorder
from slurmddp.diagnose.evidence import Evidence, make_observation, observe_lines, observe_tracebacks
from slurmddp.diagnose.line_meanings import means
from slurmddp.diagnose.log_reader import LogLine, make_evidence, read_lines
from slurmddp.diagnose.prefixes import strip_prefixes
from slurmddp.diagnose.rank_exits import parse_rank_exits
from slurmddp.diagnose.rule_types import EXIT_STATUS, Line, Observation, Rule
from slurmddp.diagnose.rules import find_rule
from slurmddp.diagnose.tracebacks import find_own_frame, find_tracebacks
from slurmddp.exit_codes import STOPPED
from slurmddp.runs.exit_records import ExitRecord, decisive_record, read_records
from slurmddp.runs.files import modification_time, open_regular
from slurmddp.runs.history import Event, History, LogPart
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import relative_path
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobRef

READ_RANKS: Final = 24  # the output of so many ranks that failed is read, and that of as many without a record
RANK_BYTES: Final = 2**16  # how much of the head and of the tail of the output is read for a rank that left a record
READ_DUMPS: Final = 64
READ_NODES: Final = 64
_FILE = re.compile(r"(|flight\.|node-)(\d{1,6})(|\.end|\.out|\.error\.json)")
"""The names of the files of ranks and nodes; a longer number is no rank's."""
_DECISIONS: Final = frozenset({"requeue", "fenced", "job_end"})
_COMPARED_CHARS: Final = 200  # how much of an exception is compared with the lines of a log, which are cut


def read_attempt_evidence(run: RunDir, job_id: str, attempt: str, events: Sequence[Event]) -> Evidence:
    """Return the evidence of one attempt; `events` are those of the job."""
    folder = run.attempt(job_id, attempt)
    numbers, records = _list_files(folder), read_records(folder)
    decisive = decisive_record(records)
    own_events = [event for event in events if event.attempt == attempt]
    history = History(tuple(events))
    log = _read_batch_log(run.batch_log(job_id), history.log_parts().get(attempt))
    errors = _read_batch_log(run.batch_errors(job_id), history.log_parts("errors_offset").get(attempt))
    outputs = [folder / f"node-{number}.out" for number in numbers.get("node-.out", ())[:READ_NODES]]
    nodes = [line for path in outputs for line in read_lines(path)]
    ranks = (rank for kind in (".end", ".out", ".error.json") for rank in numbers.get(kind, ()))
    world_size = 1 + max(ranks, default=-1)
    recorded = {record.rank: record.host for record in records if record.host}
    local_nodes = tuple(dict.fromkeys(recorded.values())) if JobRef.parse(job_id).is_local else ()
    hosts = _assign_hosts(own_events, world_size, local_nodes) | recorded
    silent = tuple(sorted(set(range(world_size)) - {record.rank for record in records}))
    console = read_lines(run.rank_log(job_id, attempt, 0))
    launcher = [*log, *errors, *nodes, *(line for line in console if line.text.startswith("torchrun: "))]
    shared = [*strip_prefixes(log), *strip_prefixes(errors)]
    observations = [
        *_observe_ranks(run, (job_id, attempt), records, {rank: hosts.get(rank, "") for rank in silent}, shared),
        *(observation for lines in (log, errors, nodes) for observation in observe_lines(lines)),
        *(() if numbers else observe_tracebacks([*log, *errors])),  # no Python of a user's own script has attached
        *_observe_decisions(run, own_events),
    ]
    for index, seen in enumerate(observations):
        if seen.rule.key == evidence.PORT_TAKEN and seen.rank is not None:
            output = read_lines(run.rank_log(job_id, attempt, seen.rank), head=RANK_BYTES, tail=RANK_BYTES)
            observations[index] = evidence.blame_launcher(seen, output)
    dumps = {folder / f"flight.{rank}": rank for rank in numbers.get("flight.", ())[:READ_DUMPS]}
    loaded = flight_recorder.load_dumps(list(dumps)) if dumps else {}  # it takes a process
    return Evidence(
        attempt=attempt,
        observations=tuple(observations),
        exits=tuple(parse_rank_exits(launcher, tasks_are_nodes="node-.out" in numbers)),
        world_size=world_size,
        hosts=hosts,
        silent_ranks=silent,
        failed_count=sum(1 for record in records if record.failed),
        stop_record=_record_line(decisive) if decisive and decisive.status == STOPPED else None,
        divergence=flight_recorder.find_divergence({dumps[path]: dump for path, dump in loaded.items()}),
        suspicious_lines=evidence.find_suspicious_lines([*log, *errors, *nodes] or console),
    )


def read_script_evidence(run: RunDir, job_id: str, events: Sequence[Event], failure: ExitRecord | None) -> Evidence:
    """Return the evidence of a job that started no rank, or whose set-up failed last, as `failure` says."""
    written = f"{failure.status} {failure.reason}" if failure else ""
    started = any(event.kind == "attempt_start" for event in events)
    paths = () if started else (run.batch_log(job_id), run.batch_errors(job_id))
    lines = [line for path in paths for line in _read_batch_log(path) if line.text != written]
    observations = [*observe_tracebacks(lines), *observe_lines(lines), *_observe_decisions(run, events)]
    if failure:
        line = Line(relative_path(run.batch_log(job_id)), 0, written)
        observations += _observe_reason(failure.reason, line, failure.time)
    return Evidence(
        observations=tuple(observations),
        exits=tuple(parse_rank_exits(lines)),
        suspicious_lines=evidence.find_suspicious_lines(lines),
    )


def _list_files(folder: Path) -> dict[str, list[int]]:
    """Return the numbers of the ranks or nodes that have a file of each kind, in order; a kind is the name without."""
    found: dict[str, list[int]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if match := _FILE.fullmatch(entry.name):
                found.setdefault(match[1] + match[3], []).append(int(match[2]))
    return {kind: sorted(numbers) for kind, numbers in found.items()}


def _read_batch_log(path: Path, part: LogPart | None = None) -> list[LogLine]:
    """Return the lines of a part of the batch log, without those of the supervisor: its events say the same."""
    lines = read_lines(path, **(part or LogPart())._asdict())
    return [line for line in lines if not means(line.text, "supervisor")]


def _assign_hosts(events: Sequence[Event], world_size: int, nodes: tuple[str, ...]) -> dict[int, str]:
    """Return each rank's node: equally many ranks on each node of the attempt's start, or else of `nodes`."""
    start = next((event for event in events if event.kind == "attempt_start"), None)
    nodes = try_expand(start.text("nodes")) or () if start else nodes
    if not nodes or world_size < len(nodes):
        return {}
    return {rank: nodes[rank * len(nodes) // world_size] for rank in range(world_size)}


def _observe_decisions(run: RunDir, events: Sequence[Event]) -> Iterator[Observation]:
    """Yield what the supervisor's reasons say, without the part that repeats how the ranks ended."""
    repeated = ""
    for event in events:
        reason = event.text("reason")
        line = Line(relative_path(run.batch_log(event.job)), 0, reason)  # the supervisor prints its reasons there
        if event.kind == "attempt_end":
            repeated = reason
            if reason.startswith("hung "):  # its ranks were killed for it
                yield from _observe_reason(reason, line, event.time)
        elif event.kind in _DECISIONS:
            yield from _observe_reason(reason.replace(repeated, "") if repeated else reason, line, event.time)


def _observe_reason(text: str, line: Line, time: float) -> Iterator[Observation]:
    if match := find_rule(text):
        yield make_observation(*match, line, time=time, rank=None)


def _observe_ranks(
    run: RunDir, place: tuple[str, str], records: Sequence[ExitRecord], silent: Mapping[int, str], shared: list[LogLine]
) -> Iterator[Observation]:
    """Yield what ranks say; `silent` has the node of each rank without a record, `shared` what the script printed."""
    failed = [record for record in records if record.failed]
    for record in failed[:READ_RANKS]:
        yield from _observe_recorded_rank(record, run.rank_error(*place, record.rank), shared)
    for record in failed[READ_RANKS:]:
        rule, groups = _find_reason_rule(record.reason)
        yield make_observation(rule, groups, _record_line(record), time=record.time, rank=record.rank, host=record.host)
    for rank, host in islice(silent.items(), READ_RANKS):
        output, error = run.rank_log(*place, rank), run.rank_error(*place, rank)
        yield from _observe_silent_rank(output, error, rank, host)


def _observe_recorded_rank(record: ExitRecord, error: Path, shared: Sequence[LogLine]) -> Iterator[Observation]:
    """Yield what a rank's record says; if it only lost its peer or waited, what its output says too."""
    rank, host = record.rank, record.host
    texts, time = _read_exceptions(error) or [record.reason], record.time
    index, rule, groups = evidence.find_exception_rule(texts) or (0, *_find_reason_rule(record.reason))
    lines = _read_output(record.output, rank, host, time, head=RANK_BYTES, tail=RANK_BYTES)
    shown = lines if record.output.exists() else [line for line in shared if line.rank in (None, rank)]
    line, frame = _find_line(shown, texts[index], _record_line(record))
    own = make_observation(rule, groups, line, time=time, rank=rank, host=host, frame=frame)
    if own.is_cause and rule.key != EXIT_STATUS:
        yield own
        return
    others = [other for other in observe_lines(lines) if other.rule.key != rule.key]
    if not (own.is_cause and any(other.is_cause for other in others)):  # else its output says more than its status
        yield own
    yield from others


def _observe_silent_rank(output: Path, error: Path, rank: int, host: str) -> list[Observation]:
    """Return what the error file says of a rank without a record, else what its output says."""
    lines = _read_output(output, rank, host, modification_time(output))
    texts = _read_exceptions(error)
    if match := evidence.find_exception_rule(texts):
        index, rule, groups = match
        line, frame = _find_line(lines, texts[index], Line(relative_path(output), 0, texts[index]))
        time = modification_time(error)
        return [make_observation(rule, groups, line, time=time, rank=rank, host=host, frame=frame)]
    return [*observe_tracebacks(lines), *observe_lines(lines)]


def _read_output(path: Path, rank: int, host: str, written: float | None, **parts: int) -> list[LogLine]:
    """Return the lines of a rank's output, each with its rank, host and time: `written` where it has no timestamp."""
    lines = strip_prefixes(read_lines(path, **parts))
    return [line._replace(rank=rank, host=host or line.host, time=line.time or written) for line in lines]


def _record_line(record: ExitRecord) -> Line:
    """Return what a record says, with the file that a person reads: the output of the rank, else of the script."""
    folder = record.path.parents[1]
    output = record.output if record.output.exists() else folder.with_name(f"{folder.name}.out")
    return Line(relative_path(output), 0, record.reason)


def _find_reason_rule(reason: str) -> tuple[Rule, Mapping[str, str]]:
    """Return the rule for the reason in a record, which is an exception or an error of slurmddp without its name."""
    match = find_rule(reason, "exception") or find_rule(f"Error: {reason}", "exception")
    if match is None:
        raise ValueError(f"no rule for {reason!a}: the general rule for slurmddp's own errors is missing")
    return match


def _read_exceptions(path: Path) -> list[str]:
    """Return the exceptions in a rank's error file, the first raised at the head: the first line of each."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError), open_regular(path) as file:
        message = json.loads(file.read())["message"]
        stack = [LogLine(path, 0, line) for line in str(message["extraInfo"]["py_callstack"]).splitlines()]
        last = find_tracebacks(stack)[-1:]
        texts = [line.text for traceback in last for line in traceback.exceptions]
        return texts or [str(message["message"]).split("\n")[0]]
    return []


def _find_line(lines: Sequence[LogLine], exception: str, missing: Line) -> tuple[Line, Line | None]:
    """Return the last line of a rank's output that begins with the exception, and the program's own line above it."""
    same = (at for at in reversed(range(len(lines))) if lines[at].text.startswith(exception[:_COMPARED_CHARS]))
    if (at := next(same, None)) is None:
        return missing, None
    return make_evidence(lines[at]), make_evidence(frame) if (frame := find_own_frame(lines, at)) else None
