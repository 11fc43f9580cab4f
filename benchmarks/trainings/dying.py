"""Ends rank 1 by kill -9 where a file asks for it."""

import os
import signal
import time
from pathlib import Path


def die_if_asked(folder: Path, rank: int) -> None:
    """Write the time into FOLDER/killed and end, when there is FOLDER/kill."""
    asked = folder / "kill"
    if rank == 1 and asked.exists():
        asked.unlink()
        (folder / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
