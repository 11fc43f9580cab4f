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
    """Return what the condition returns once that is true; fail with `otherwise()` if it is not within the time.

    The pause between two looks grows to five times `pause_s` in the first twenty seconds.
    """
    begin = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - begin
        assert waited_s < timeout_s, f"not within {timeout_s} s: {otherwise()}"
        time.sleep(pause_s * min(1 + waited_s / 5, 5))
    return found


ASK_SLURM_S = 0.2
"""The first pause between two questions to Slurm: each is a process, and several tests that ask keep a core busy."""
