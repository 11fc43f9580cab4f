"""What `slurmddp diagnose FILE` takes on a large log: its time beside that of `grep`, and its memory.

    python benchmarks/diagnose_log.py

The log has a traceback near its end; the programs run in turn.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from programs import SLURMDDP
from rows import Row, print_rows

RUNS, SIZE_MB = 5, 300
LINE = "[{rank}] 2026-11-21 12:00:00,123 INFO train.py:88 step {step} loss 0.123456 lr 0.000300 samples/s 1234.5\n"
END = '[3] Traceback (most recent call last):\n[3]   File "train.py", line 9, in <module>\n[3] ValueError: label 12\n'


def write_log(path: Path, size: int) -> None:
    """Write lines of four ranks until the file has that many bytes, and the failure of rank 3."""
    block = "".join(LINE.format(rank=number % 4, step=number) for number in range(10_000))
    with path.open("w") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.write(END + block[:2000])


def run(command: list[str]) -> tuple[float, float]:
    """Run a program; return its seconds and its most memory in MB."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        write_log(log, SIZE_MB * 2**20)
        diagnose, grep = [SLURMDDP, "diagnose", str(log)], ["grep", "-c", "-E", "Error|Traceback", str(log)]
        turns = [(run(diagnose), run(grep)) for _ in range(RUNS)]
    (ours_s, ours_mb), (grep_s, grep_mb) = (tuple(zip(*runs, strict=True)) for runs in zip(*turns, strict=True))
    name = f"diagnose of a log of {SIZE_MB} MB"
    return [
        Row(name=name, unit="s", ours=ours_s, peers={"grep -E": grep_s}, wanted="at most 4 s"),
        Row(name=f"{name}, memory", unit="MB", ours=ours_mb, peers={"grep -E": grep_mb}, wanted="at most 200 MB"),
    ]


if __name__ == "__main__":
    print_rows(rows())
