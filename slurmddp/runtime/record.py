"""Writes how this rank ended: its record for the batch script, and its error file. Touches the run's folder only."""

import json
import time
import traceback

from slurmddp.rundir import write_whole
from slurmddp.runtime.environment import Rank
from slurmddp.runtime.events import End, write_event
from slurmddp.runtime.verdict import Verdict


def write_end(rank: Rank, verdict: Verdict) -> None:
    """Leave this rank's record, `<status> <reason>`, and rank 0's event."""
    if rank.run_dir is None:
        return
    write_event(rank, End(status=verdict.status, reason=verdict.reason))
    line = f"{verdict.status} {verdict.reason}\n".encode("utf-8", "replace")
    write_whole(rank.run_dir.rank_record(rank.job, rank.attempt, rank.rank), line)


def write_error(rank: Rank, error: BaseException) -> None:
    """Leave the exception in the form of torch's TORCHELASTIC_ERROR_FILE."""
    if rank.run_dir is None:
        return
    text = "".join(traceback.format_exception(error))
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    content = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    path = rank.run_dir.rank_error(rank.job, rank.attempt, rank.rank)
    write_whole(path, json.dumps(content).encode("ascii"))
