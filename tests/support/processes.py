"""What the kernel says of a process."""

import re
import signal
from pathlib import Path


def signals(pid: int, mask: str) -> set[int]:
    """Return the signals in a mask of proc_pid_status(5): SigCgt, caught; SigBlk, blocked; ShdPnd, pending."""
    (bits,) = re.findall(rf"^{mask}:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {number for number in signal.valid_signals() if int(bits, 16) >> (number - 1) & 1}
