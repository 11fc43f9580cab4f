"""Runs loops of a benchmark in turn in the same ranks, and reads the seconds of their blocks of steps."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from programs import ENVIRON
from rows import Samples

from slurmddp.runtime.session import Session

MARK = "BLOCK"


def block_s(loop: Iterator[None], steps: int) -> float:
    """Return the seconds of one of the steps that the loop takes when it is asked for its next block."""
    begin = time.perf_counter()
    next(loop)
    return (time.perf_counter() - begin) / steps


def say_block(ddp: Session, *seconds: float) -> None:
    """Print the seconds of each loop's block on rank 0."""
    ddp.print(MARK, *seconds)


def run_ranks(program: str, *words: str, ranks: int = 2, path: Sequence[Path] = ()) -> list[Samples]:
    """Run `program rank WORDS` by torchrun, and return for each loop its seconds; the first block is a warm-up.

    `path` has folders of modules besides the environment's.
    """
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environ = {**ENVIRON, "PYTHONPATH": ":".join(map(str, path))}
    done = subprocess.run(
        [*launch, program, "rank", *words], check=True, stdout=subprocess.PIPE, text=True, env=environ
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    return list(zip(*(map(float, line.split()[1:]) for line in lines[1:]), strict=True))


def in_ms(samples: Samples) -> Samples:
    """Return seconds in milliseconds."""
    return tuple(sample * 1000 for sample in samples)
