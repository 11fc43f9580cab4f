"""Writes how this rank ended: its exit record for the batch script, and its error file, in the run's folder."""

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

from slurmddp.runs import events
from slurmddp.runs.events import Author
from slurmddp.runs.exit_records import record_line
from slurmddp.runs.files import write_whole
from slurmddp.runs.training_events import End, RankEvent
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.launch.rank import Rank


def write_event(rank: Rank, event: RankEvent) -> None:
    """Append an event to the run's events; only global rank 0 of a run does."""
    if rank.run_dir and rank.is_main:
        author = Author(job=rank.job, attempt=rank.attempt, rank=rank.rank, host=rank.host)
        events.append(rank.run_dir, author, event)


def write_end(rank: Rank, verdict: Verdict) -> None:
    """Write this rank's exit record, `0 done` or `<status> rank <r> on <host>: <reason>`, and rank 0's event.

    Raises OSError when the run's folder cannot be written to.
    """
    if rank.run_dir is None:
        return
    line = record_line(rank.rank, rank.host, verdict.status, verdict.reason)
    write_event(rank, End(status=verdict.status, reason=line.rstrip("\n").partition(" ")[2]))
    write_whole(rank.run_dir.rank_record(rank.job, rank.attempt, rank.rank), line.encode("utf-8", "replace"))


def write_error(rank: Rank, error: BaseException) -> None:
    """Write the exception in the form of TORCHELASTIC_ERROR_FILE, into the run's folder and for torchrun's agent.

    Does not raise if it cannot write: the exit record has the error in one line.
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    content = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    paths = {rank.run_dir.rank_error(rank.job, rank.attempt, rank.rank)} if rank.run_dir else set()
    if agents := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        paths.add(Path(agents))
    for path in paths:
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(content).encode("ascii"))
