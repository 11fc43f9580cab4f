"""Writes how this rank ended: its record for the batch script, and its error file. Touches the run's folder only."""

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

from slurmddp.rundir import write_whole
from slurmddp.runtime.environment import Rank
from slurmddp.runtime.events import End, write_event
from slurmddp.runtime.verdict import Verdict


def write_begin(rank: Rank) -> None:
    """Leave rank 0's sign that all ranks have met."""
    if rank.run_dir and rank.is_main:
        rank.run_dir.rank_begin(rank.job, rank.attempt, rank.rank).touch(mode=0o600)


def write_end(rank: Rank, verdict: Verdict) -> None:
    """Leave this rank's record, `0 done` or `<status> rank <r> on <host>: <reason>`, and rank 0's event.

    Raises OSError when the run's folder cannot be written to.
    """
    if rank.run_dir is None:
        return
    reason = f"rank {rank.rank} on {rank.host}: {verdict.reason}" if verdict.status else verdict.reason
    write_event(rank, End(status=verdict.status, reason=reason))
    line = f"{verdict.status} {reason}\n".encode("utf-8", "replace")
    write_whole(rank.run_dir.rank_record(rank.job, rank.attempt, rank.rank), line)


def write_error(rank: Rank, error: BaseException) -> None:
    """Leave the exception in the form of torch's TORCHELASTIC_ERROR_FILE: in the run's folder, and for an agent.

    Does without where it cannot write: the record says the same in short.
    """
    text = "".join(traceback.format_exception(error))
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    content = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    for path in _error_files(rank):
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(content).encode("ascii"))


def _error_files(rank: Rank) -> set[Path]:
    ours = {rank.run_dir.rank_error(rank.job, rank.attempt, rank.rank)} if rank.run_dir else set()
    agents = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return ours | {Path(agents)} if agents else ours
