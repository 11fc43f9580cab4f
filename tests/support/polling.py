"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found],
    timeout_s: float = 300,
    otherwise: Callable[[], object] = str,
    *,
    pause_s: float = 0.02,
) -> Found:
    """Return what the condition returns once that is true; fail with `otherwise()` if it is not within the time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {otherwise()}"
        time.sleep(pause_s)
    return found


ASK_SLURM_S = 0.2
"""The pause between two questions to Slurm: each is a process."""
