"""A notice to a training on the GPU: how long until its state is durable, and until the process has ended with 75.

python benchmarks/gpu_notice.py [--cpu]
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_device import Bench, Line, print_part
from gpu_ranks import LIMIT_S, PROGRAMS, environment_of_rank
from rows import Row

from slurmddp.exit_codes import STOPPED
from slurmddp.runs.checkpoints import find_saved
from slurmddp.runs.layout import RunDir

POLL_S = 0.002


def told_s(bench: Bench, width: int) -> tuple[float, float]:
    """Tell a training to stop; return the seconds to its durable checkpoint, and to its end."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run, mark = RunDir(Path(folder, "told").resolve()), Path(folder, "mark")
        words = ["-m", "slurmddp.worker", str(PROGRAMS / "told.py"), bench.device.type, str(width), str(mark)]
        environment = environment_of_rank(run, on_gpu=bench.on_gpu)
        with subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL) as process:
            try:
                wait_until(process, mark)
                return notice_s(process, run)
            finally:
                process.kill()


def wait_until(process: subprocess.Popen[bytes], mark: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not mark.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"the training did not come into its loop; status {process.returncode}")
        time.sleep(POLL_S)


def notice_s(process: subprocess.Popen[bytes], run: RunDir) -> tuple[float, float]:
    begin = time.perf_counter()
    process.send_signal(signal.SIGUSR2)
    durable_s = None
    while process.poll() is None and time.perf_counter() < begin + LIMIT_S:
        if durable_s is None and find_saved(run, ""):
            durable_s = time.perf_counter() - begin
        time.sleep(POLL_S)
    end_s = time.perf_counter() - begin
    saved = find_saved(run, "")
    if process.returncode != STOPPED or not saved:
        raise SystemExit(f"status {process.returncode} in place of {STOPPED}, checkpoint {saved}")
    return end_s if durable_s is None else durable_s, end_s


def lines(bench: Bench) -> Iterator[Line]:
    width = bench.pick(4096, 64)
    samples = [told_s(bench, width) for _ in range(bench.pick(3, 1))]
    state_mb = 2 * 4 * (width + 1) * width * 4 / 2**20
    durable, ended = (tuple(column) for column in zip(*samples, strict=True))
    yield Row(
        name=f"USR2 in a training with {state_mb:.3g} MiB of state, one rank: its state is durable",
        unit="s",
        ours=durable,
        peers={"ended with status 75": ended},
    )


if __name__ == "__main__":
    print_part(lines)
