"""Notes when the program saves something by its own means: a job whose program saves is one that makes progress."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from slurmddp.runtime import patches
from slurmddp.runtime.launch.rank import Rank

_PAUSE_S = 1.0
"""Between two notes: a program may save thousands of small files."""


def note_saves(rank: Rank) -> None:
    """Note each call of `torch.save` and safetensors' `save_file` in the attempt's folder."""
    if rank.run_dir is None:
        return
    mark, noted_at = rank.run_dir.program_save(rank.job, rank.attempt), -_PAUSE_S

    def wrap(save: Callable[..., Any]) -> Callable[..., Any]:
        def save_and_note(*words: Any, **more: Any) -> Any:
            nonlocal noted_at
            saved = save(*words, **more)
            if (now := time.monotonic()) - noted_at >= _PAUSE_S:
                noted_at = now
                with contextlib.suppress(OSError):
                    mark.touch(mode=0o600)
            return saved

        return save_and_note

    patches.after_import("torch", lambda _: patches.replace(patches.SAVE, wrap))
    patches.after_import("safetensors.torch", lambda _: patches.replace(patches.SAVE_FILE, wrap))
