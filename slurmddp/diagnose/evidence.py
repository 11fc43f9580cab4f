"""The evidence that an attempt or a log has left, and the rules that its lines match. Reads files."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from slurmddp.diagnose import tracebacks
from slurmddp.diagnose.flight_recorder import Divergence, find_lagging_rank
from slurmddp.diagnose.line_meanings import HEADER, LAST_TOLD, drop_teardown, drop_tracebacks, means
from slurmddp.diagnose.log_reader import LogLine, cut_around, make_evidence, read_lines
from slurmddp.diagnose.prefixes import drop_times, strip_prefixes
from slurmddp.diagnose.rank_exits import RankExit, parse_rank_exits
from slurmddp.diagnose.rule_types import Line, Observation, Rule, Trait
from slurmddp.diagnose.rules import end_causes, find_rule
from slurmddp.diagnose.tracebacks import is_ordinary, line_shape, names_exception, ordinary_lines
from slurmddp.runs.log_tail import SLACK_S, relative_path

SUSPICIOUS_LINES: Final = 3  # how many lines are shown when the cause is not known
_SRUN_LABEL: Final = re.compile(r" *\d+: ")
_CLOSING_LINES: Final = 3  # a batch script may print so many lines after its step
_LAST_LINES: Final = 30  # if none of so many lines at the end looks wrong, a file does not say that the job failed
_HEAD_LINES: Final = 10
_MOST_LAST_WORDS: Final = 500
_GAP_S: Final = 3600.0
_HEAD_AGAIN: Final = 3
_MOST_JUMPS: Final = 3
_LEAST_STAMPS: Final = 5  # what stands between two jumps back in time has so many timestamps
_MODULE: Final = re.compile(
    r'\s*File "((?:[^"<](?!/(?:site|dist)-packages/|/lib/python|/bin/))+|<string>)", line (\d{1,9})(, in <module>)?$'
)
_NUMBER: Final = re.compile(r"\d{1,18}")
PORT_TAKEN: Final = "port-taken"
IMPORT_ERROR: Final = "import-error"
_Lines = Sequence[LogLine]
_STEP_OF: Final = re.compile(r"(?i)\b(?:epoch|step|iter(?:ation)?)s?\W{0,3}(\d{1,12}) ?(?:/|of) ?(\d{1,12})\b")
_NAMED_EXCEPTION: Final = re.compile(
    r"(?<![\w.])((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failed))(?::(?: |$)|\((?=['\"]))"
)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence that one attempt, or the log of one job, has left."""

    attempt: str = ""
    observations: tuple[Observation, ...] = ()
    exits: tuple[RankExit, ...] = ()  # in the order in which the launchers reported them
    world_size: int = 0  # 0 if it is not known
    hosts: Mapping[int, str] = field(default_factory=dict)  # the node of each rank, as far as it is known
    silent_ranks: tuple[int, ...] = ()  # the ranks without an exit record, if others have one
    failed_count: int = 0  # how many ranks left a record of a failure
    stop_record: Line | None = None  # rank 0's record, if all ranks were told to stop
    continued_after_exit: bool = False  # its script started the program again after the last exit that was reported
    divergence: Divergence | None = None
    suspicious_lines: tuple[Line, ...] = ()  # the first lines that look wrong; the last lines if none does
    has_wrong_end: bool = True  # whether any of the last lines looks wrong, of a short file any
    good_end: Line | None = None  # a line at the end that tells of a good one; nothing looks wrong behind it
    summary: Line | None = None  # a result among the last words, which nothing before is like

    def host_of(self, rank: int | None) -> str:
        """Return a rank's node; empty if it is not known."""
        return self.hosts.get(rank, "") if rank is not None else ""

    def having(self, trait: Trait) -> list[Observation]:
        """Return the observations of causes with a trait."""
        return [seen for seen in self.observations if seen.has(trait)]


def make_observation(
    rule: Rule, groups: Mapping[str, str], line: Line, *, rank: int | None = None, host: str = "", **more: Any
) -> Observation:
    """Return the observation of a rule; a rank and a host that the line itself names replace the given ones."""
    match, named = rule.search(line.text), groups.get("rank", "")
    own_rank = int(named) if named.isdecimal() else rank
    seen = Observation(
        rule=rule,
        role=rule.role,
        sure=rule.sure,
        what=rule.what.format(**groups).strip(": "),
        line=replace(line, text=cut_around(line.text, match.start() if match else 0)),
        groups=groups,
        rank=own_rank,
        host=groups.get("host") or (host if own_rank == rank else ""),
        **more,
    )
    return weaken(seen) if seen.ran_on and seen.is_cause else seen


def _observe(rule: Rule, groups: Mapping[str, str], line: LogLine, **more: Any) -> Observation:
    """Return the observation of a rule in a line of a log."""
    found = make_evidence(line)
    return make_observation(rule, groups, found, time=line.time, rank=line.rank, host=line.host, **more)


def weaken(seen: Observation) -> Observation:
    """Return an observation as likely, and a cause as a symptom: the program may have gone on after it."""
    return replace(seen, role="symptom" if seen.is_cause else seen.role, sure="likely")


def find_exception_rule(texts: Sequence[str]) -> tuple[int, Rule, Mapping[str, str]] | None:
    """Return the rule of a chain of exceptions, the index of the exception that it matches, and the groups.

    The first exception that a specific rule matches counts, else the last one that a general rule matches and that
    does more than to wrap another.
    """
    found = [(index, *match) for index, text in enumerate(texts) if (match := find_rule(text, "exception"))]
    specific = [item for item in found if not item[1].general]
    roots = [item for item in found if not means(texts[item[0]], "wrapper")]
    return next(iter(specific or roots[-1:] or found[-1:]), None)


def observe_tracebacks(lines: _Lines, *, worked: float = -1) -> Iterator[Observation]:
    """Yield an observation for each traceback that seems to be fatal; `worked` is where the job was at work last."""
    lines = tracebacks.drop_ignored(lines)
    shapes = [line_shape(line.text) for line in ordinary_lines(lines) if not names_exception(line.text)]
    new = {shape: index for index, shape in reversed([*enumerate(shapes)])}
    fresh = tracebacks.count_from([new[shape] == index for index, shape in enumerate(shapes)])
    found = tracebacks.find_fatal_tracebacks(lines)
    last = [line.text for traceback in found[-1:] for line in traceback.exceptions if not traceback.lines_after]
    timed_out = any(means(text, "timed out") for text in last)
    for traceback in found:
        if match := find_exception_rule([line.text for line in traceback.exceptions]):
            index, rule, groups = match
            end = max(0, len(shapes) - traceback.lines_after)
            hung = any(means(text, "signal") for text in last) and 2 * fresh[end] >= len(shapes) - end  # no more steps
            line, after = traceback.exceptions[index], min(traceback.lines_after, 1 if hung else len(lines))
            frame = traceback.own_frame if line is traceback.exceptions[-1] else None
            is_other = last and not (hung or timed_out)  # another one ended the program
            most = 0 if is_other else tracebacks.MOST_AFTER_FATAL
            more = {"lines_after": after, "ran_on": after > most or line.at < worked}
            yield _observe(rule, groups, line, frame=make_evidence(frame) if frame else None, **more)


def observe_lines(lines: _Lines, printed: _Lines = (), *, begun: float = -1) -> Iterator[Observation]:
    """Yield the first observation of each key by the rules for any line; `printed` are all, if some were left out.

    If the program ran on after a line, the observation is a symptom at most: it may be a warning, or tell of a failure
    after which the program tried again. What has no rank was outlived where the ranks have `begun` behind it.
    """
    known: set[tuple[object, ...]] = set()
    ordinary_after = tracebacks.count_from([is_ordinary(line.text) and not means(line.text, "noise") for line in lines])
    work = _find_progress(lines)
    killed = _find_work(lines, least=tracebacks.MOST_AFTER_FATAL + 1)  # a step works on until it is killed
    for index, line in enumerate(lines):
        is_end = means(line.text, "slurm") and means(line.text, "end", "job end", "launcher end")
        worked = killed if is_end else work if line.rank is not None else max(work, begun)
        match = find_rule(line.text)
        rank = line.rank if match and match[0].role == "symptom" else None  # each rank that waited is counted
        if match and (kind := (match[0].key, match[0].general, match[0].role, rank)) not in known:
            known.add(kind)
            is_script = means(line.text, "script")
            after = None if means(line.text, "slurm") and not is_script else ordinary_after[index + 1]
            was_outlived = (after or 0) > tracebacks.OUTLIVED_LINES or line.at < worked
            ran_on = was_outlived or (is_script and _has_begun(line, printed or lines))
            yield _observe(*match, line, lines_after=after, ran_on=ran_on)


def _find_work(lines: _Lines, *, least: int = 1) -> float:
    """Return where the `least`-last line is at which a program was at work; -1 if a bad end is told behind the last.

    Where a rank fails, others are at work for a while: a few such lines behind its end do not count.
    """
    works = [at for at, line in enumerate(lines) if means(line.text, "at work")]
    few = max(least, _CLOSING_LINES + 1)
    end = lines[works[-few] if len(works) >= few else 0 :]
    return -1 if len(works) < least or any(means(line.text, "ended") for line in end) else lines[works[-least]].at


def _find_progress(lines: _Lines, *, least: int = 1, shapes: bool = False) -> float:
    """Return up to where a program went on that told of its good end, or whose end is calm; else where it worked.

    The last lines do not count: a script prints some also behind a program that failed. With `shapes`, only lines like
    others do: they are of its steps.
    """
    last = [line.text for line in lines if line.text.strip() and not means(line.text, "closing")][-_LAST_LINES:]
    is_calm = not any(means(text, "wrong", "ended", "slurm", "doubtful", "waiting") for text in last)
    own = [at for at, line in enumerate(lines) if is_ordinary(line.text) and not names_exception(line.text)]
    said = any(tracebacks.tells_good_end(lines, at) for at in own[-_CLOSING_LINES:])
    ended_well = said or _find_good_end(lines) or _find_summary(lines)
    if not (ended_well or is_calm):
        return _find_work(lines, least=least)
    same = Counter(line_shape(lines[at].text) for at in own)
    steps = [lines[at] for at in own if not shapes or same[line_shape(lines[at].text)] > 1]
    most = 0 if said and shapes else _CLOSING_LINES if ended_well else tracebacks.MOST_AFTER_FATAL
    return max(steps[-most - 1].at if len(steps) > most else -1.0, _find_work(lines, least=least))


def _has_begun(line: LogLine, printed: Sequence[LogLine]) -> bool:
    """Return whether a batch script ran on after its line: a program has begun below, or raised an exception.

    A program, or a module that is not found, is no sign of it: the set-up that failed would have given it.
    """
    begin = bisect_right(printed, line.at, key=lambda one: one.at)
    below = [one.text for one in printed[begin:]]
    has_begun = any(means(text, "begun", "at work") for text in below)
    named = (find_rule(text, "exception") for text in below if names_exception(text) and not means(text, "script"))
    return has_begun or any(not match or match[0].key != IMPORT_ERROR for match in named)


def _find_ranks(lines: Sequence[LogLine]) -> float:
    """Return where the ranks begin to print, by srun's labels of their lines, if they began; -1 without any.

    What stands before it without a label is of the batch script, which ran on after it.
    """
    first = next((line for line in lines if line.rank is not None and _SRUN_LABEL.match(line.prefix)), None)
    return first.at if first and _has_begun(first, lines) else -1


def blame_launcher(seen: Observation, lines: Iterable[LogLine]) -> Observation:
    """Return the observation of a port in use as one of a launcher in each rank, if these lines are of a launcher."""
    rule = end_causes()["launcher"]
    return replace(seen, rule=rule, what=rule.what) if any(means(line.text, "launcher") for line in lines) else seen


def observe_last_words(
    lines: Sequence[LogLine], *, outlived: Container[str] = (), has_ended: bool = False
) -> Iterator[Observation]:
    """Yield what the last lines say of a failure, though no traceback is whole: the first of each key.

    Of exceptions of which no rule knows more, and of lines that only call themselves an error, the last one counts.
    They are symptoms: nothing shows that they ended the program; a cause that it has `outlived` is none. Unless it
    `has_ended` badly, they count only if it does not go on, and the warning of a library not at all.
    """
    lines = tracebacks.drop_ignored(lines)
    worked = _find_work(lines)
    ends = {lines[one.end - 1].offset: one.exceptions for one in tracebacks.find_tracebacks(lines)}
    found: dict[str, Observation] = {}
    for line, after in _last_words([tracebacks.join_message(lines, index) for index in range(len(lines))]):
        chain = ends.get(line.offset, ())
        if (first := find_exception_rule([one.text for one in chain])) and chain[first[0]].offset != line.offset:
            continue  # another exception of its traceback says more
        # an exception behind other words, `Kind: why` also for `Kind('why')`; then the line
        behind = islice(_NAMED_EXCEPTION.finditer(line.text), 8)
        named = (f"{found[1]}: {line.text[found.end() :]}" for found in behind)
        for text in (*named, line.text):
            match = find_rule(text, "exception" if names_exception(text) and not means(text, "script") else "end")
            if match is None or match[0].key in outlived:
                continue
            rule, groups = match
            is_vague = rule.general and rule.role == "cause"
            is_weak = not has_ended and (rule.place == "end" or is_vague)
            goes_on = bool(after) and (text != line.text or rule.place == "end" or line.at < worked)
            if is_weak and (goes_on or means(text, "warning")):
                continue
            seen = _observe(rule, groups, line._replace(text=text), lines_after=after)
            seen = replace(seen, ran_on=line.at < worked, sure="likely")
            if is_vague or rule.place == "end" or rule.key not in found:
                found[rule.key] = replace(seen, role="symptom" if is_vague else seen.role)
            break
    yield from found.values()


def _last_words(lines: Sequence[LogLine]) -> Iterator[tuple[LogLine, int]]:
    """Yield the last lines of a program, each with how many ordinary ones follow: none if the last tell of a good end.

    A few ordinary lines may follow a failure, and more if they differ, as those of a page people wrote around it do.
    """
    lines = lines[-_MOST_LAST_WORDS:]
    told = [line for line in lines if line.text.strip() and not means(line.text, "warning")]
    if any(means(line.text, "good end") for line in told[-LAST_TOLD:]):
        return
    ordinary = [is_ordinary(line.text) and not means(line.text, "wrong") for line in lines]
    end = [line_shape(line.text) for line in compress(lines, ordinary)][-tracebacks.OUTLIVED_LINES :]
    most = tracebacks.OUTLIVED_LINES if len(set(end)) > len(end) / 2 else tracebacks.MOST_AFTER_FATAL
    for line, after in zip(lines, tracebacks.count_from(ordinary)[1:], strict=True):
        if after <= most and not means(line.text, "harmless", "at work"):
            yield line, after


def find_suspicious_lines(lines: Sequence[LogLine]) -> tuple[Line, ...]:
    """Return the first lines that look wrong; the last lines if none does."""
    printed = [line for line in lines if line.text.strip()]
    wrong = [line for line in printed if means(line.text, "wrong")]
    doubtful = [line for line in printed if means(line.text, "doubtful")]
    return tuple(map(make_evidence, (wrong or doubtful)[:SUSPICIOUS_LINES] or printed[-SUSPICIOUS_LINES:]))


def read_log_evidence(
    paths: Sequence[Path], ranks: Mapping[Path, int] | None = None, *, has_failed: bool = True
) -> Evidence:
    """Return the evidence of a job that slurmddp did not submit, from its output in one file or several.

    `ranks` says which rank wrote a file, as far as that is known. If it is not known that the job `has_failed`, a line
    after which the program went on was a warning.
    """
    named = ranks or {}
    files = [_read_last_start(path, named.get(path)) for path in dict.fromkeys(paths)]
    kept = [drop_teardown(file) for file in files]
    if not has_failed:
        files, kept = [*map(tracebacks.drop_noise, files)], [*map(tracebacks.drop_noise, kept)]
    exits = parse_rank_exits(*([line for file in part for line in file] for part in (files, kept)))
    found = _read_evidence(kept, files, exits, has_failed=has_failed)
    if found.observations or exits or kept == files:
        return found
    again = _read_evidence([drop_tracebacks(file) for file in files], files, exits, has_failed=has_failed)
    return replace(_read_evidence(files, files, exits, has_failed=has_failed), observations=again.observations)


def _read_evidence(
    files: Sequence[_Lines], printed: Sequence[_Lines], exits: Sequence[RankExit], *, has_failed: bool
) -> Evidence:
    """Return what the files show; `printed` are all lines of each, also those that were left out."""
    lines = [line for file in files for line in file]
    spoken = (line for line in lines if is_ordinary(line.text) and not means(line.text, "noise"))
    heard = {line.rank for line in spoken} - {None}
    may_go_on = not (has_failed or exits)
    found = [seen for part in zip(files, printed, strict=True) for seen in _observe_file(*part)]
    has_wrong_end = any(means(line.text, "wrong") for file in files for line in file[_HEAD_LINES:][-_LAST_LINES:])
    may_be_well = may_go_on and not has_wrong_end
    worked = [max(_find_progress(file), _find_progress(file, shapes=True)) for file in files]
    stopped = (line for file, at in zip(files, worked, strict=True) for line in file if line.at > at)
    has_ended = not may_go_on or any(means(line.text, "ended") for line in stopped)
    ordinary = Counter({relative_path(file[0].path): len(ordinary_lines(file)) for file in files if file})
    counts = partial(_counts, ordinary=ordinary, may_be_well=may_be_well, has_ended=has_ended)
    keys = {seen.rule.key for seen in found if seen.ran_on and not has_ended}
    found = [seen for seen in found if counts(seen)]
    if any(seen.rule.key == PORT_TAKEN for seen in found) and (own := _find_launchers(lines, exits)):
        found = [blame_launcher(seen, own) if seen.rule.key == PORT_TAKEN else seen for seen in found]
    if not any(seen.is_cause for seen in found):
        last = (seen for file in files for seen in observe_last_words(file, outlived=keys, has_ended=has_ended))
        found += filter(counts, last)
    is_short = len(lines) <= _HEAD_LINES + _LAST_LINES
    ends = (line.text for file in printed for line in file[-_LAST_LINES:] if not means(line.text, "warning"))
    told_status = any(means(text, "bad status") for text in ends)
    told_late = told_status or any((seen.lines_after or 0) <= tracebacks.MOST_AFTER_FATAL for seen in found)
    return Evidence(
        observations=tuple(found),
        exits=tuple(exits),
        divergence=find_lagging_rank(line.text for line in lines),
        world_size=len(heard) if heard == {*range(len(heard))} else 0,  # else a part of the log is missing
        suspicious_lines=find_suspicious_lines(lines),
        has_wrong_end=told_late or any(_looks_wrong_at_end(file, is_short=is_short) for file in files),
        continued_after_exit=_continues_after_exit(lines, exits),
        good_end=next(filter(None, map(_find_good_end, files)), None),
        summary=next(filter(None, map(_find_summary, files)), None) if may_go_on and not found else None,
    )


def _looks_wrong_at_end(lines: _Lines, *, is_short: bool) -> bool:
    """Return whether any of the last lines looks wrong, but a warning, or one as the program has printed before."""
    lines = tracebacks.drop_ignored(lines)
    start = 0 if is_short else max(_HEAD_LINES, len(lines) - _LAST_LINES)
    before = {line_shape(line.text) for line in lines[:start]}
    new = [line.text for line in lines[start:] if line_shape(line.text) not in before]
    last = [text for text in new if not means(text, "at work", "warning", "harmless", "noise")]
    return any(means(text, "wrong", "ended") or (is_short and means(text, "doubtful")) for text in last)


def _find_good_end(lines: Sequence[LogLine]) -> Line | None:
    """Return the line that tells of a good end; launchers and Slurm may end what is left of the job after it."""
    told = [line for line in lines if line.text.strip() and not means(line.text, "closing")]
    was_ended = any(means(line.text, "slurm") for line in told[-LAST_TOLD:])
    ordinary = [line for line in told if is_ordinary(line.text)][-_CLOSING_LINES:]
    is_bad = any(means(line.text, "ended") for line in told[-LAST_TOLD:])  # it may print a summary all the same
    for line in reversed(ordinary if was_ended else told[-LAST_TOLD:]):
        is_good = means(line.text, "good end") or (was_ended and tracebacks.tells_good_end(lines, lines.index(line)))
        if is_good and not (is_bad and means(line.text, "finally")):
            return make_evidence(line)
        if means(line.text, "wrong", "ended"):
            break
    return None


def _find_summary(lines: Sequence[LogLine]) -> Line | None:
    """Return a result, or the last of all steps, at the end of a file in which nothing looks wrong there."""
    told = [line for line in lines if line.text.strip()]
    shapes = Counter(line_shape(line.text) for line in told)
    steps = [match for line in told[-tracebacks.OUTLIVED_LINES :] for match in _STEP_OF.finditer(line.text)]
    are_left = any(int(match[1]) + 1 < int(match[2]) for match in steps[-1:])
    looks_bad = any(means(line.text, "wrong", "ended", "slurm", "doubtful") for line in told[-LAST_TOLD:])
    for line in reversed([] if are_left or looks_bad else told[-_CLOSING_LINES:]):
        is_over = "100%" in line.text or ("%" not in line.text and means(line.text, "at work"))
        is_last_step = is_over and any(match[1] == match[2] for match in _STEP_OF.finditer(line.text))
        is_new = shapes[line_shape(line.text)] == 1 and not means(line.text, "at work")
        if is_last_step or (is_new and means(line.text, "summary")):
            return make_evidence(line)
    return None


def _find_launchers(lines: Sequence[LogLine], exits: Sequence[RankExit]) -> Sequence[LogLine]:
    """Return the lines of launchers if several ranks print some, or a command, and ranks share a node."""
    hosts = [host for host, _ in {(end.host, end.number) for end in exits if end.host}]
    shared = len(hosts) > len(set(hosts)) or any(means(end.line.text, "tasks") for end in exits)
    found = [line for line in lines if shared and line.rank is not None and means(line.text, "launcher")]
    commands = [line for line in lines if shared and " --nproc" in line.text and means(line.text, "launcher")]
    return found if len({line.rank for line in found}) > 1 else commands


def _counts(seen: Observation, ordinary: Counter[str], *, may_be_well: bool, has_ended: bool) -> bool:
    """Return whether the program did not run on after it, or ended badly, and not much was printed after it."""
    is_head = seen.line.number <= _HEAD_LINES and seen.rank is None  # much may be printed in the other files, too
    elsewhere = ordinary.total() - ordinary[seen.line.file] if may_be_well and is_head else 0
    is_old = may_be_well and seen.lines_after is not None and seen.lines_after + elsewhere > tracebacks.OUTLIVED_LINES
    went_on = seen.ran_on or (seen.lines_after and means(seen.line.text, "waiting"))
    return not is_old and (has_ended or not went_on)


def _read_last_start(path: Path, rank: int | None) -> list[LogLine]:
    """Return the lines of the last start in a file, in the order of time."""
    lines = _last_start(tracebacks.drop_waiting(_order_by_time(strip_prefixes(read_lines(path)))))
    return [*lines] if rank is None else [line._replace(rank=rank) for line in lines]


def _order_by_time(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines in the order of time, each with the time above it; where clocks differ, as they stand."""
    stamped = [(at, line.time) for at, line in enumerate(lines) if line.time is not None and is_ordinary(line.text)]
    jumps = [at for at, (one, two) in enumerate(pairwise(stamped), 1) if two[1] < one[1] - SLACK_S]
    parts = [two - one for one, two in pairwise([0, *jumps, len(stamped)])]
    stamps, starts = dict(stamped), {stamped[at][0] for at in jumps}
    time, reached, found = None, -math.inf, []
    for index, line in enumerate(lines):
        time = time if line.time is None else line.time
        reached = stamps[index] if index in starts else max(reached, stamps.get(index, reached))
        found.append((reached, line._replace(time=time)))
    if not jumps or len(jumps) > _MOST_JUMPS or min(parts) < _LEAST_STAMPS:
        return [line for _, line in found]
    return [line._replace(order=place) for place, (_, line) in enumerate(sorted(found, key=itemgetter(0)))]


def _last_start(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the lines from the last start on, if a program was started again into the same file.

    A start is where the head of the file is printed again after an end, where `_find_again` finds one, or where another
    job, or a launcher's next start, follows. What is shorter than last words is no start.
    """
    lines = lines[_find_repaired(lines) :]
    shapes = [line_shape(line.text) for line in lines]
    spoken = ordinary_lines(drop_teardown(lines))
    own = {line.offset for line in spoken if not (names_exception(line.text) or means(line.text, "noise"))}
    own -= _find_messages(lines)
    continued = _find_continued(lines, shapes, own)
    after = tracebacks.count_from([line.offset in own for line in lines])
    again = dict(_find_again(lines, shapes, own))
    told = max((index for index, line in enumerate(lines) if means(line.text, "end", "good end")), default=-1)
    starts, sure = [0, *again], {0, *(start for start, is_sure in again.items() if is_sure and start < told)}
    closing = range(max(0, len(lines) - _CLOSING_LINES), len(lines))
    well = max((index for index in closing if means(lines[index].text, "good end")), default=-1)
    has_head = shapes[:1] != shapes[1:2] and not any(means(line.text, "launcher end", "end") for line in lines[:2])
    end = ""  # the last line that tells of an end, since the last start
    for index, line in enumerate(lines[:-1]):
        if means(line.text, "job end", "restart"):
            starts += [] if index in continued and means(line.text, "job end") else [index + 1]
            sure |= {index + 1} if index < well or shapes[index + 1] == shapes[0] else set()
        elif end and has_head and shapes[index : index + 2] == shapes[:2] and index not in continued:
            starts.append(index)
            sure |= {index} if index < well or means(end, "good end", "no start") else set()
            end = ""
        if means(line.text, "launcher end", "end", "good end", "no start") and not means(end, "good end"):
            end = line.text
    long = (start for start in starts if after[start] > tracebacks.MOST_AFTER_FATAL or start in sure)
    return lines[max(long, default=0) :]


def _find_messages(lines: _Lines) -> set[int]:
    """Return the places of lines that are told again, but below one exception only: ranks have printed its message."""
    above: dict[str, list[str]] = {}
    raised = ""
    for line in lines:
        raised = line.text if names_exception(line.text) else raised
        above.setdefault(line.text, []).append(raised)
    of_one = {text for text, found in above.items() if len(found) > 1 and found[0] and len({*found}) == 1}
    return {line.offset for line in lines if line.text in of_one}


def _find_repaired(lines: _Lines) -> int:
    """Return where the lines begin below a start whose program was not found, or not valid, if it has run since."""
    frames, broken = dict[str, int](), dict[str, int]()  # how far each file came; one that is not valid came nowhere
    most, begin, behind = math.inf, 0, 0
    for index, line in enumerate(lines):
        is_child, is_launcher = "<string>" in frames, means(line.text, "launcher error")
        if match := _MODULE.match(line.text):
            frames[match[1]] = int(match[2]) if match[3] else 0
        elif means(line.text, "no start") and not is_child:
            broken, most, behind, frames = frames, math.inf if frames else 0, index + 1, {}
        elif line.text.endswith(HEADER) or names_exception(line.text):
            if not (is_child or is_launcher) and any(at > broken.get(file, most) for file, at in frames.items()):
                most, begin, broken = math.inf, behind, {}
            frames = {}
    return begin


def _find_again(lines: _Lines, shapes: Sequence[str], own: Container[int]) -> Iterator[tuple[int, bool]]:
    """Yield where a count, or lines printed once, begin again after an end or gap (sure), or after both (not sure)."""
    seen: dict[object, tuple[int, int, int]] = {}  # of a kind of lines: its first number, the highest, the last place
    end = gap = rose = -1
    repeated: list[int] = []
    for index, line in enumerate(lines):
        end = index if means(line.text, "launcher end", "end", "good end") else end
        gap = index if index and (line.time or 0.0) - (lines[index - 1].time or math.inf) > _GAP_S else gap
        if line.offset not in own:
            continue
        bound, match = max(end, gap), _NUMBER.search(drop_times(line.text))
        kind, number = (line.rank, shapes[index]), int(match[0]) if match else 0
        first, most, last = seen.get(kind, (number, number, index))
        begins = number <= first < most and rose <= last < bound
        same, _, once = seen.get(line.text, (0, 0, index))
        repeated = [*(at for at in repeated if at > bound), index] if same == 1 and once < bound else []
        rose = index if number > most else rose
        seen[kind] = first, max(most, number), index
        seen[line.text] = same + 1, 0, once
        if begins or len(repeated) == _HEAD_AGAIN:
            yield min([index, *repeated[:1]]), True
            seen, end, gap, rose, repeated = {}, -1, -1, -1, []
        elif -1 < end < gap == index:
            yield index, False


def _find_continued(lines: Sequence[LogLine], shapes: Sequence[str], own: Container[int]) -> frozenset[int]:
    """Return the lines behind which a program goes on: its next own line is as one before, with no lower number."""
    last: dict[str, int] = {}
    found: list[int] = []
    behind: list[int] = []
    for index, line in enumerate(lines):
        if line.offset in own:
            number = int(match[0]) if (match := _NUMBER.search(line.text)) else -1
            found += behind if 0 <= last.get(shapes[index], -1) <= number else []
            last[shapes[index]], behind = number, []
        else:
            behind.append(index)
    return frozenset(found)


def _observe_file(lines: Sequence[LogLine], printed: Sequence[LogLine]) -> list[Observation]:
    """Return what a file shows, in its order; the tracebacks of each program are read from its own lines."""
    streams: dict[str, list[LogLine]] = {}
    for line in lines:
        stream = str(line.rank) if line.rank is not None else drop_times(line.prefix)  # of one program
        streams.setdefault(stream, []).append(line)
    at, begun = _find_progress(lines, least=_CLOSING_LINES + 1, shapes=True), _find_ranks(printed)
    found: list[Observation] = []
    for part in streams.values():
        found += observe_tracebacks(part, worked=max(at, begun) if part[0].rank is None else at)
    found += observe_lines(lines, printed, begun=begun)
    return sorted(found, key=lambda seen: seen.line.number)


def _continues_after_exit(lines: Sequence[LogLine], exits: Sequence[RankExit]) -> bool:
    """Tell whether the program went on after the last exit, by more than a script's closing lines.

    srun may report an exit before it has passed on all that its tasks had printed. A program that was started again
    prints lines of the same shape as before, or several of one shape.
    """
    places = {(end.line.path, end.line.offset) for end in exits}
    last = max((at for at, line in enumerate(lines) if (line.path, line.offset) in places), default=len(lines))
    before, after = ([line_shape(line.text) for line in ordinary_lines(part)] for part in (lines[:last], lines[last:]))
    return len(after) > _CLOSING_LINES or len(set(after)) < len(after) or not set(before).isdisjoint(after)
