"""What Slurm says of a job: the controller, then the accounting. Asks Slurm; no files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, queries
from slurmddp.slurm.job_info import Row
from slurmddp.slurm.states import PHASES, Phase

ASK_LIMIT_S: Final = 20.0
"""For each of Slurm's programs; a controller that is down takes longer than anybody wants to wait."""
_ORDER: Final[tuple[Phase, ...]] = ("failed", "cancelled", "unknown", "running", "queued", "done")


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
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return PHASES.get(self.state, "unknown")


def ask(job_id: str, environ: Mapping[str, str]) -> Facts:
    """Return what Slurm knows of a job; `files` is the source where it knows nothing or does not answer."""
    held = queries.controller(job_id, environ, timeout_s=ASK_LIMIT_S)
    known = _told(job_id, held.rows)
    booked = None if "not found" in held.silence else _of_accounting(job_id, environ)
    if known is None:
        return booked or Facts(job_id=job_id, source="files", silence=held.silence)
    return replace(known, by=booked.by, max_rss=booked.max_rss, last_step=booked.last_step) if booked else known


def _of_accounting(job_id: str, environ: Mapping[str, str]) -> Facts | None:
    heard = queries.last_run(job_id, environ, timeout_s=ASK_LIMIT_S)
    return _told(job_id, [row for row in heard.rows if re.fullmatch(rf"{job_id}(_\d+)?", row.job_id)])


def _told(job_id: str, rows: Sequence[Row]) -> Facts | None:
    """Return what is to be told of an array that was meant as a whole: of a task that failed, if there is one."""
    found = [_of_row(job_id, row) for row in rows]
    return min(found, key=lambda facts: _ORDER.index(facts.phase)) if found else None


def _of_row(job_id: str, row: Row) -> Facts:
    is_one = row.job_id.partition("_")[2].isdecimal()
    return Facts(
        job_id=row.job_id if is_one else job_id,
        source=row.source,
        state="" if row.state == "UNKNOWN" else row.state,
        reason=row.reason,
        exit_code=row.exit_status,
        name=row.name,
        nodes=row.nodes,
        output=row.output,
        errors=row.errors,
        max_rss=row.max_rss,
        last_step=row.last_step,
        by=row.by,
    )


def lost_nodes(host_list: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of some nodes that are down, failing, or do not respond now; none where Slurm does not say."""
    command = ["sinfo", "--noheader", "--Node", f"--nodes={host_list}", "--format=%N %T"]
    try:
        answer = client.ask(command, environ, timeout_s=ASK_LIMIT_S)
    except ClusterError:
        return ()
    rows = [line.split() for line in answer.stdout.splitlines()]
    down = (row[0] for row in rows if len(row) > 1 and (row[1].startswith(("down", "fail")) or row[1].endswith("*")))
    return tuple(dict.fromkeys(down))
