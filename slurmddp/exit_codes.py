"""What the exit status of a rank, and of the batch script, means. No I/O.

Ranks write these numbers into their exit records, and the supervisor decides by them. Python, shells and most programs
end with smaller numbers of their own, a program that a signal ends has 128 or more. 75 means "try again later" in
sysexits.h, too (EX_TEMPFAIL); 76 to 78 do not follow that file.
"""

from typing import Final

DONE: Final = 0
"""The work is complete; written by global rank 0 alone, after the last barrier."""

STOPPED: Final = 75
"""Ended by a stop signal; the reason says what was saved."""

RETRYABLE: Final = 76
"""Failed in a way that another attempt can cure: a lost peer, a taken port, a timeout."""

FAILED: Final = 77
"""Failed in a way that another attempt would repeat: an exception in user code, a wrong configuration."""

FENCED: Final = 78
"""Another attempt owns the run; never started again."""
