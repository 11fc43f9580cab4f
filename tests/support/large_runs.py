"""The folder of a long run of a failed job, with events by the hundred megabytes; written in a second."""

import itertools
import json
from pathlib import Path

from slurmddp.runs.events import AttemptEnd, AttemptRestart, AttemptStart, Author, JobEnd, SupervisorEvent, record
from slurmddp.runs.exit_records import record_line
from slurmddp.runs.layout import RunDir
from slurmddp.runs.training_events import Checkpoint, Loop, Metrics, Resume, Start

JOB = "2807912"
_BEGAN = 1795304879.0
_STEPS_OF_A_CHECKPOINT = 100
_ATTEMPTS = 3


def make(path: Path, *, size: int, submitted: bool = True) -> RunDir:
    """Write a run whose events have at least `size` bytes: three attempts, the last of which failed for good."""
    run = RunDir(path)
    run.create()
    if submitted:
        line = {"time": "2026-11-21T23:47:59+00:00", "job": JOB, "cluster": "", "after": None, "sha256": ""}
        run.submissions.write_text(json.dumps(line) + "\n")
    last = _ATTEMPTS - 1
    with run.events.open("w") as file:
        for attempt in range(_ATTEMPTS):
            folder = run.attempt(JOB, f"0.{attempt}")
            folder.mkdir(parents=True)
            status, reason = (
                (77, "ValueError: no such file") if attempt == last else (76, "the connection to a peer was lost")
            )
            for rank in range(2):
                folder.joinpath(f"{rank}.out").write_text(f"ValueError: rank {rank} has no such file\n")
                folder.joinpath(f"{rank}.end").write_text(record_line(rank, "n1", status, reason))
            file.writelines(_attempt_lines(attempt, (attempt + 1) * size // _ATTEMPTS, file.tell()))
    return run


def _attempt_lines(attempt: int, until: int, at: int):
    step = 0 if not attempt else attempt * 10_000_000
    clock = itertools.count(_BEGAN + step / 10, 0.1)
    rank_0, supervisor = Author(JOB, f"0.{attempt}", "n1", 0), Author(JOB, f"0.{attempt}", "n1")

    def line(author: Author, event: SupervisorEvent) -> str:
        return json.dumps({**record(author, event), "time": next(clock)}) + "\n"

    yield line(supervisor, AttemptStart(nodes="n[1-2]", log_offset=0, allocated=_BEGAN, checkpoints=""))
    yield line(rank_0, Start(2, 2, 1, "srun", {"n1": "0-1"}))
    if attempt:
        yield line(rank_0, Resume(step, f"step-{step:09}", 2))
    yield line(rank_0, Loop(step, 30_000_000))
    template = line(rank_0, Metrics(-1, 30_000_000, {"loss": -2.0, "samples_per_s": -3.0, "lr": 0.02999886771474207}))
    head, _, tail = template.partition('"step": -1')
    head = head.partition(", ")[2]
    while at < until:
        step += 1
        values = tail.replace("-2.0", f"{1 + step % 7 / 7}").replace("-3.0", f"{1500 + step % 11 / 11}")
        text = f'{{"time": {next(clock)}, {head}"step": {step}{values}'
        if step % _STEPS_OF_A_CHECKPOINT == 0:
            text += line(rank_0, Checkpoint(step, 0.04412993200094206, 0.08337771899823565))
        at += len(text)
        yield text
    if attempt < _ATTEMPTS - 1:
        yield line(supervisor, AttemptEnd(76, "rank 1 on n1: the connection to a peer was lost"))
        yield line(supervisor, AttemptRestart(76, "rank 1 on n1: the connection to a peer was lost"))
    else:
        yield line(supervisor, AttemptEnd(77, "rank 0 on n1: ValueError: no such file"))
        yield line(supervisor, JobEnd(77, "rank 0 on n1: ValueError: no such file"))
