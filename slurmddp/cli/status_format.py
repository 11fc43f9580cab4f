"""What became of jobs, as lines for people. Pure."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.monitoring.status.job_status import Happened
from slurmddp.text import WIDTH, duration, printable, shortened, table

_HEAD: Final = ("RUN", "JOB", "STATE", "TIME", "WHAT")
_NAME: Final = 16
_SETTING: Final = 28
_MOST_TASKS: Final = 4
"""More tasks of an array in the same state are one row."""
_MOST_TOLD: Final = 5
"""Of more restarts or requeues the last are told."""
_LABEL: Final = 12
_GOES_ON: Final = frozenset({"queued", "running", "unknown"})
"""In these phases an old answer may be wrong by now."""


def rows(statuses: Sequence[JobStatus], *, each: bool = False, width: int = WIDTH) -> Iterator[str]:
    """Yield a table of `width` columns, a row for each job; many tasks in one state are one row, but not for `each`."""
    alike: dict[tuple[str, str, str], list[JobStatus]] = {}
    for status in statuses:
        alike.setdefault(_kind(status, each=each), []).append(status)
    cells = [row for group in alike.values() for row in _cells(group)]
    left = [line.rstrip() for line in table([_HEAD[:-1], *(row[:-1] for row in cells)])]
    used = max(map(len, left))
    for line, what in zip(left, [_HEAD[-1], *(row[-1] for row in cells)], strict=True):
        yield f"{line.ljust(used)}  {shortened(what, width - used - 2)}".rstrip()


def block(status: JobStatus) -> Iterator[str]:
    """Yield all that is known of one job, a subject a line."""
    yield f"{_title(status)} {printable(status.state)}"
    for label, text in _subjects(status):
        lines = textwrap.wrap(printable(text), WIDTH - _LABEL - 2, break_on_hyphens=False)
        for number, line in enumerate(lines):
            yield f"  {('' if number else label).ljust(_LABEL)}{line}"


def _title(status: JobStatus) -> str:
    return f"{printable(status.name)}: job {status.job_id} is" if status.name else f"job {status.job_id} is"


def _kind(status: JobStatus, *, each: bool) -> tuple[str, str, str]:
    number, _, task = status.job_id.partition("_")
    single = each and status.run is not None and status.run.sweep is not None
    return (number, status.state, status.reason) if task and not single else (status.job_id, "", "")


def _cells(group: Sequence[JobStatus]) -> Iterator[tuple[str, ...]]:
    if len(group) <= _MOST_TASKS:
        yield from (_row(status, status.job_id, what(status)) for status in group)
        return
    first = group[0]
    number = first.job_id.partition("_")[0]
    name = first.run.job_name if first.run else first.name
    yield _row(replace(first, name=name), f"{number}_*", f"{len(group)} tasks; {what(first)}".removesuffix("; "))


def _row(status: JobStatus, job_id: str, text: str) -> tuple[str, ...]:
    time = "" if status.elapsed_s is None or status.phase == "queued" else duration(status.elapsed_s)
    width = _SETTING if status.run and status.name == status.run.path.name and status.run.sweep else _NAME
    return shortened(status.name, width), shortened(job_id, _NAME), printable(status.state), time, text


def what(status: JobStatus) -> str:
    """Return in a few words why a job waits, how far it is, or how it ended."""
    if status.phase == "queued":
        words = _waits(status)
    elif status.phase in ("running", "done"):
        words = ", ".join([*([status.meaning.partition(":")[0]] if status.meaning else []), *_advance(status.progress)])
    else:
        words = status.meaning
    old = f"{duration(status.age_s)} ago" if status.age_s >= 1 and status.phase in _GOES_ON else ""
    return ", ".join(part for part in (old, words) if part)


def _waits(status: JobStatus) -> str:
    start = f"starts {moment(status.expected_start)}" if status.expected_start else ""
    return ", ".join(part for part in (start, status.meaning.partition("; ")[0]) if part)


def _advance(progress: Progress | None) -> Iterator[str]:
    if progress is None or progress.step is None:
        return
    yield f"step {progress.step}/{progress.total}" if progress.total else f"step {progress.step}"
    if progress.loss is not None:
        yield f"loss {progress.loss:.4g}"
    if progress.left_s is not None:
        yield f"{duration(progress.left_s)} left"


def moment(time: datetime) -> str:
    """Return a time for people: of today the clock alone."""
    local = time.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == datetime.now().astimezone().date() else f"{local:%Y-%m-%d %H:%M}"


def _subjects(status: JobStatus) -> Iterator[tuple[str, str]]:
    known = {
        "why": "; ".join(_why(status)),
        "starts": f"{moment(status.expected_start)}, as Slurm expects" if status.expected_start else "",
        "submitted": moment(status.submitted) if status.submitted else "",
        "started": moment(status.started) if status.started else "",
        "ended": moment(status.ended) if status.ended else "",
        "time": _time(status),
        "where": _where(status),
        "exit status": status.exit_status,
        "came back": _times(status.restarts) if status.restarts else "",
    }
    yield from ((label, text) for label, text in known.items() if text)
    if status.progress:
        yield from _of_progress(status.progress)
    if status.run:
        yield "folder", str(status.run.path)
    yield "told by", _origin(status)


def _why(status: JobStatus) -> Iterator[str]:
    if status.reason and status.reason not in ("None", "NonZeroExitCode", status.meaning):
        yield status.reason
    if status.meaning:
        yield status.meaning


def _time(status: JobStatus) -> str:
    limit = f"limit {duration(status.limit_s)}" if status.limit_s is not None else "no limit"
    if status.source == "files":
        return ""
    ran = duration(status.elapsed_s) if status.elapsed_s is not None and status.phase != "queued" else ""
    return ", ".join(part for part in (ran, limit) if part)


def _where(status: JobStatus) -> str:
    nodes = status.nodes[:8]
    more = f" and {len(status.nodes) - len(nodes)} more" if len(status.nodes) > len(nodes) else ""
    partition = f"partition {status.partition}" if status.partition else ""
    return ", ".join(part for part in (" ".join(nodes) + more, partition) if part)


def _of_progress(progress: Progress) -> Iterator[tuple[str, str]]:
    if progress.attempt:
        yield "attempt", progress.attempt
    if words := [*_advance(progress)]:
        pace = [f"{progress.samples_per_s:.4g} samples/s"] if progress.samples_per_s is not None else []
        yield "progress", ", ".join([*words, *pace])
    if progress.checkpoint_step is not None:
        age = f", {duration(progress.checkpoint_age_s)} old" if progress.checkpoint_age_s is not None else ""
        yield "checkpoint", f"step {progress.checkpoint_step}{age}"
    yield from _happened("restarted", progress.restarts)
    yield from _happened("requeued", progress.requeues)


def _happened(label: str, events: Sequence[Happened]) -> Iterator[tuple[str, str]]:
    if len(events) > _MOST_TOLD:
        yield label, f"{_times(len(events))}, the last of them:"
    for time, reason in events[-_MOST_TOLD:]:
        yield label, f"{moment(datetime.fromtimestamp(time).astimezone())} {reason}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _origin(status: JobStatus) -> str:
    origin = "the run's files" if status.source == "files" else status.source
    old = f", {duration(status.age_s)} old" if status.age_s >= 1 else ""
    return f"{origin}{old}"
