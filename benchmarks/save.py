"""How long a checkpoint of 256 MiB holds the training, and the interpreter while it is written.

    python benchmarks/save.py

Prints ratios of medians, measured in turn, so that all see the same machine and the same disk. Wanted: at most
1.5 times a plain copy of the same tensors into memory that is there already, and at most a tenth of `torch.save`
with fsync.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from slurmddp.runtime.checkpoint.staging import Snapshot
from slurmddp.runtime.checkpoint.store import Store

ROUNDS = 9
STATE = {f"layer.{index}": torch.randn(1024, 1024) for index in range(64)}
TICK_S = 0.0005


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def copy_into(copies: dict[str, torch.Tensor]) -> None:
    for name, tensor in STATE.items():
        copies[name].copy_(tensor)


def save_and_sync(path: Path) -> None:
    with path.open("wb") as file:
        torch.save(STATE, file)
        file.flush()
        os.fsync(file.fileno())


def longest_wait_for(work: Callable[[], object]) -> float:
    """Return the longest time by which a thread that only sleeps woke up late while `work` ran beside it."""
    worker = threading.Thread(target=work)
    late = 0.0
    worker.start()
    while worker.is_alive():
        late = max(late, seconds(lambda: time.sleep(TICK_S)) - TICK_S)
    return late


def main() -> None:
    snapshot = Snapshot()
    copies = {name: tensor.clone() for name, tensor in STATE.items()}
    times: dict[str, list[float]] = {"held": [], "copy": [], "torch.save": [], "durable": []}
    with tempfile.TemporaryDirectory(dir=".") as folder, ThreadPoolExecutor(1) as writer:
        store = Store(Path(folder) / "checkpoints", identity="0" * 32, keep=1, owner=None, say=print)
        saving: list[Future[str]] = []

        def save(step: int) -> None:
            saving.append(writer.submit(store.write, step, {"model.pt": snapshot.take(STATE)}, {}))

        first = seconds(lambda: save(0))
        saving[-1].result()
        for step in range(1, ROUNDS + 1):
            times["copy"].append(seconds(lambda: copy_into(copies)))
            begin = time.perf_counter()
            save(step)
            times["held"].append(time.perf_counter() - begin)
            saving[-1].result()
            times["durable"].append(time.perf_counter() - begin)
            plain = Path(folder) / f"plain-{step}.pt"  # a new file, as what replaces the only checkpoint must be
            times["torch.save"].append(seconds(partial(save_and_sync, plain)))
            plain.unlink()
        late = longest_wait_for(lambda: store.write(ROUNDS + 1, {"model.pt": STATE}, {}))
    median = {name: statistics.median(values) for name, values in times.items()}
    held = median["held"]
    print(f"held: {held / median['copy']:.2f} times a warm copy ({held:.3f} s against {median['copy']:.3f} s)")
    print(
        f"held: {held / median['torch.save']:.3f} times torch.save with fsync "
        f"({held:.3f} s against {median['torch.save']:.3f} s)"
    )
    print(f"durable, hashed and compared: {median['durable'] / median['torch.save']:.2f} times torch.save with fsync")
    print(f"first save, which finds the memory: held {first:.3f} s")
    print(f"while it is written, another thread waits {late * 1000:.1f} ms at most")


if __name__ == "__main__":
    main()
