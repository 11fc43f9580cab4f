"""The failures of several runs: what they have in common, and what they cost. Reads the runs' files.

What Slurm says of jobs that have recorded no end is handed in.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slurmddp.diagnose.diagnosis import diagnose_attempt, diagnose_ended
from slurmddp.diagnose.rule_types import Diagnosis
from slurmddp.diagnose.run_evidence import read_script_evidence
from slurmddp.diagnose.verdict import judge
from slurmddp.runs.facts import Attempt, Run, set_up_failure
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo
from slurmddp.text import format_table, list_some

_SHOWN_NODES: Final = 4
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One attempt that failed."""

    name: str
    job_id: str
    time: float  # when it ended, in seconds since 1970
    diagnosis: Diagnosis
    nodes: tuple[str, ...]  # the node of the first rank that failed; empty if it is not known
    lost_gpu_hours: float  # the time since its last checkpoint, or since its start, times its ranks


def find_failures(runs: Iterable[Run], *, since: float, environ: Mapping[str, str] | None = None) -> Iterator[Failure]:
    """Yield the attempts and the set-ups of these runs that failed after a time, in seconds since 1970.

    Of a job that has recorded no end, what Slurm says is the end of its last attempt; with `environ` it is asked which
    nodes such a job has lost.
    """
    for folder, job in ((run.folder, job) for run in runs for job in run.jobs):
        events, ended = job.history.supervision, set_up_failure(folder, job.job_id, ())
        if ended and ended.time >= since:
            evidence = read_script_evidence(folder, job.job_id, events, ended)
            found = judge(JobInfo(job.job_id, name=folder.path.name), evidence)
            yield _make_failure(folder, job.job_id, found, (), ended.time)
        ended_by_slurm = job.slurm if job.slurm and job.outcome.final else None
        for attempt in job.attempts[:-1] if ended_by_slurm else job.attempts:
            if attempt.outcome.meaning.failed and (attempt.outcome.time or 0.0) >= since:
                found = diagnose_attempt(folder, job.job_id, attempt.name, events)
                yield _make_failure(folder, job.job_id, found, [attempt], attempt.outcome.time or 0.0)
        if ended_by_slurm and job.outcome.meaning.failed and (job.outcome.time or 0.0) >= since:
            found = diagnose_ended(folder, ended_by_slurm, environ or {})
            yield _make_failure(folder, job.job_id, found, job.attempts[-1:], job.outcome.time or 0.0)


def _make_failure(run: RunDir, job_id: str, found: Diagnosis, attempts: Sequence[Attempt], ended: float) -> Failure:
    """Return the failure of one attempt, or of a job that has made none."""
    gpu_hours = 0.0
    for events in (attempt.events for attempt in attempts):
        begin, ranks = events.last("checkpoint") or events.events[0], events.last("start")
        gpu_hours = max(0.0, ended - begin.time) * (ranks.count("world_size") if ranks else 0) / _HOUR_S
    nodes = (found.host,) if found.host else ()
    name = run.path.name
    return Failure(name=name, job_id=job_id, time=ended, diagnosis=found, nodes=nodes, lost_gpu_hours=gpu_hours)


def format_failures(failures: Sequence[Failure], width: int = sys.maxsize) -> list[str]:
    """Return a table with a row for each cause, the costliest first; below it the nodes with several failures."""
    by_cause: dict[str, list[Failure]] = {}
    for failure in failures:
        by_cause.setdefault(failure.diagnosis.cause, []).append(failure)
    ordered = sorted(by_cause.items(), key=lambda item: (-sum(one.lost_gpu_hours for one in item[1]), item[0]))
    rows = []
    for cause, group in ordered:
        nodes = list(dict.fromkeys(node for failure in group for node in failure.nodes))
        lost = f"{sum(one.lost_gpu_hours for one in group):.3g}"
        runs = ", ".join(dict.fromkeys(one.name for one in group))
        rows.append([cause, str(len(group)), lost, list_some(nodes, _SHOWN_NODES), runs])
    head = ["CAUSE", "FAILURES", "GPU-HOURS LOST", "NODES", "RUNS"]
    table = format_table(rows, head=head, right=(1, 2), width=width)
    counted = Counter(node for failure in failures for node in failure.nodes).most_common()
    part = f"of {len(failures)} failures"
    repeated = [f"{node} had a part in {number} {part}" for node, number in counted if number > 1]
    return table + repeated[:_SHOWN_NODES]
