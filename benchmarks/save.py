"""How long a checkpoint of 256 MiB or of 2 GiB holds the training, and how long it takes until it is durable.

    python benchmarks/save.py

All ways to save take turns, so that they see the same machine and the same disk; each writes a new file or folder, as
what replaces the only checkpoint must do. torch.distributed.checkpoint (DCP) syncs its files, as ours are; torch.save
is given an fsync. DCP's asynchronous save is measured as it comes, and with a staging area that it keeps. Durable is
the moment when the checkpoint has its name; that the one before is deleted then counts for none of them.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from rows import Row, in_turn, print_rows, seconds
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from slurmddp.runtime.checkpoint.staging import Snapshot
from slurmddp.runtime.checkpoint.store import Store

ROUNDS = 9
LAYERS, WIDTH = 64, 1024
LARGE_ROUNDS, LARGE_LAYERS = 5, 512
TICK_S = 0.0005
DURABLE = "at most 1.2 of torch.save and fsync; at most 1.0 of DCP save"

State = Mapping[str, torch.Tensor]


class TimedStore(Store):
    """Notes when a checkpoint has become durable."""

    durable_at = 0.0

    def _prune(self) -> None:
        self.durable_at = time.perf_counter()
        super()._prune()


class Ours:
    """Saves as a Checkpointer does: a copy into memory that it keeps, and a thread that writes the copy."""

    def __init__(self, folder: Path, state: State, writer: ThreadPoolExecutor) -> None:
        self.state = state
        self.store = TimedStore(folder, identity="0" * 32, keep=1, check_owner=lambda: None, say=print)
        self._writer, self._snapshot, self._step = writer, Snapshot(), 0
        self.durable_s = 0.0

    def held_s(self) -> float:
        """Save, and return how long the training is held; `durable_s` is until all is on the disk."""
        begin = time.perf_counter()
        saving = self._writer.submit(self.store.write, self._step, {"model.pt": self._snapshot.take(self.state)}, {})
        held = time.perf_counter() - begin
        saving.result()
        self.durable_s = self.store.durable_at - begin
        self._step += 1
        return held


class Asynchronous:
    """Saves by DCP's async_save."""

    def __init__(self, folder: Path, state: State, stager: DefaultStager | None) -> None:
        self._folder, self._state, self._stager = folder, state, stager
        self.durable_s = 0.0

    def held_s(self) -> float:
        """Save, and return how long the training is held; `durable_s` is until all is on the disk."""
        begin = time.perf_counter()
        saving = dcp.async_save(self._state, checkpoint_id=self._folder, async_stager=self._stager)
        held = time.perf_counter() - begin
        getattr(saving, "upload_completion", saving).result()
        self.durable_s = time.perf_counter() - begin
        shutil.rmtree(self._folder)
        return held


def make_state(layers: int, width: int, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Return square layers of float32."""
    return {f"layer.{index}": torch.randn(width, width, device=device) for index in range(layers)}


def warm_copy(state: State) -> Callable[[], float]:
    """Return a measure of a plain copy into memory that is there already."""
    copies = {name: tensor.clone() for name, tensor in state.items()}
    return lambda: seconds(lambda: [copies[name].copy_(tensor) for name, tensor in state.items()])


def save_and_sync_s(state: State, path: Path) -> float:
    begin = time.perf_counter()
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    took = time.perf_counter() - begin
    path.unlink()
    return took


def dcp_save_s(state: State, folder: Path) -> float:
    took = seconds(lambda: dcp.save(state, checkpoint_id=folder))
    shutil.rmtree(folder)
    return took


def longest_wait_for(work: Callable[[], object]) -> float:
    """Return the longest time by which a thread that only sleeps woke up late while `work` ran beside it."""
    worker = threading.Thread(target=work)
    late = 0.0
    worker.start()
    while worker.is_alive():
        late = max(late, seconds(lambda: time.sleep(TICK_S)) - TICK_S)
    return late


@contextmanager
def group_of_one() -> Iterator[None]:
    """Form the process group that async_save asks for."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def measure(folder: Path, writer: ThreadPoolExecutor) -> list[Row]:
    state = make_state(LAYERS, WIDTH)
    ours, plain = Ours(folder / "ours", state, writer), Asynchronous(folder / "dcp-async", state, None)
    stager = DefaultStager(StagingOptions(False, False, False, False))  # noqa: FBT003 positions are its interface
    kept = Asynchronous(folder / "dcp-kept", state, stager)
    measures = {
        "held": ours.held_s,
        "durable": lambda: ours.durable_s,
        "a warm copy": warm_copy(state),
        "torch.save and fsync": lambda: save_and_sync_s(state, folder / "plain.pt"),
        "DCP save": lambda: dcp_save_s(state, folder / "dcp"),
        "DCP async_save": plain.held_s,
        "async durable": lambda: plain.durable_s,
        "DCP async_save, kept stager": kept.held_s,
        "kept durable": lambda: kept.durable_s,
        "late": lambda: longest_wait_for(ours.held_s),
        "late by torch.save": lambda: longest_wait_for(lambda: save_and_sync_s(state, folder / "plain.pt")),
    }
    taken = in_turn(measures, ROUNDS, warm_up=True)
    saves = {name: taken[name] for name in ("torch.save and fsync", "DCP save")}
    stalls = {name: taken[name] for name in ("a warm copy", "DCP async_save", "DCP async_save, kept stager")}
    durable = {"DCP async_save": taken["async durable"], "DCP async_save, kept stager": taken["kept durable"]}
    return [
        Row(
            name="checkpoint of 256 MiB: the training is held",
            unit="s",
            ours=taken["held"],
            peers={**stalls, **saves},
            wanted="at most 1.0 of a warm copy; at most 0.2 of DCP async_save",
        ),
        Row(
            name="checkpoint of 256 MiB: until it is durable, with its checksum",
            unit="s",
            ours=taken["durable"],
            peers={**saves, **durable},
            wanted=DURABLE,
        ),
        Row(
            name="checkpoint of 256 MiB: another thread waits at most, while it is written",
            unit="s",
            ours=taken["late"],
            peers={"torch.save and fsync": taken["late by torch.save"]},
        ),
    ]


def measure_large(folder: Path, writer: ThreadPoolExecutor) -> list[Row]:
    state = make_state(LARGE_LAYERS, WIDTH)
    ours = Ours(folder / "large", state, writer)
    measures = {
        "held": ours.held_s,
        "durable": lambda: ours.durable_s,
        "torch.save and fsync": lambda: save_and_sync_s(state, folder / "plain.pt"),
        "DCP save": lambda: dcp_save_s(state, folder / "dcp"),
    }
    taken = in_turn(measures, LARGE_ROUNDS, warm_up=True)
    saves = {name: taken[name] for name in ("torch.save and fsync", "DCP save")}
    name = "checkpoint of 2 GiB: until it is durable, with its checksum"
    return [Row(name=name, unit="s", ours=taken["durable"], peers={**saves}, wanted=DURABLE)]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=".") as folder, ThreadPoolExecutor(1) as writer, group_of_one():
        return [*measure(Path(folder), writer), *measure_large(Path(folder), writer)]


if __name__ == "__main__":
    print_rows(rows())
