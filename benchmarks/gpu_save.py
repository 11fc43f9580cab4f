"""A checkpoint from the GPU's memory: how long it stalls the training's stream, and how long until it is durable.

    python benchmarks/gpu_save.py [--cpu]

The stall is what a save adds to steps of matrix products before and after it, from the first to the last by CUDA's
events; what a thread writes meanwhile is in it. All ways take turns; each writes new files.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from gpu_device import Bench, Line, print_part
from rows import Row, Samples, in_turn, seconds
from save import State, group_of_one, make_state, save_and_sync_s
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from slurmddp.runtime.checkpoint.staging import Snapshot
from slurmddp.runtime.checkpoint.store import Store

BEFORE, AFTER = 10, 40
"""Steps around a save."""
LEAST_MS = 0.01
"""Of a stall, which is a difference."""
OURS = "slurmddp"
FOLDERS = {"DCP async_save": "dcp", "DCP async_save, kept stager": "kept"}
"""Of the ways that leave a folder to remove, so that each save writes new files."""

Wait = Callable[[], object]
Begin = Callable[[], Wait]
"""Begins a save, which holds the caller, and returns how to wait for its end."""


class Steps:
    """What the training's stream does: products of matrices."""

    def __init__(self, bench: Bench) -> None:
        self._matrix = torch.randn(*[bench.pick(4096, 64)] * 2, device=bench.device)
        self._lower = bench.pick(torch.bfloat16, torch.float32)

    def take(self, steps: int) -> None:
        """Give the stream so many steps."""
        matrix = self._matrix.to(self._lower)
        for _ in range(steps * 10):
            matrix @ matrix


class Save:
    """One way to save: its stall, and its time until it is durable."""

    def __init__(self, bench: Bench, steps: Steps, begin: Begin, leaves: Path | None = None) -> None:
        self._bench, self._steps, self._begin, self._leaves = bench, steps, begin, leaves
        self.held_ms = self.durable_ms = 0.0
        self.wait: Wait = int
        """Waits for the end of the last save."""

    def stream_ms(self) -> float:
        """Return the milliseconds of the steps and the save in the training's stream; then wait for the save's end."""

        def work() -> None:
            self._steps.take(BEFORE)
            self.held_ms = seconds(self.hold) * 1000
            self._steps.take(AFTER)

        took_ms = self._bench.device_s(work) * 1000
        self.wait()
        self._remove()
        return took_ms

    def ended_ms(self) -> float:
        """Return the milliseconds of a save to its end, without steps beside it."""
        self._bench.finish()

        def work() -> None:
            self.hold()
            self.wait()

        took_ms = seconds(work) * 1000
        self._remove()
        return took_ms

    def _remove(self) -> None:
        if self._leaves:
            shutil.rmtree(self._leaves)

    def hold(self) -> None:
        """Begin a save, until the caller may go on."""
        self.wait = self._begin()


def our_way(folder: Path, state: State, writer: ThreadPoolExecutor) -> Begin:
    """As a Checkpointer does: a copy into pinned memory that it keeps, and a thread that writes the copy."""
    store = Store(folder, identity="0" * 32, keep=1, check_owner=lambda: None, say=print)
    snapshot, numbers = Snapshot(), iter(range(2**30))

    def begin() -> Wait:
        files = {"model.pt": snapshot.take(state)}
        return writer.submit(store.write, next(numbers), files, {}).result

    return begin


def dcp_way(folder: Path, state: State, stager: DefaultStager | None) -> Begin:
    def begin() -> Wait:
        saving = dcp.async_save(state, checkpoint_id=folder, async_stager=stager)
        ended: Future[object] = getattr(saving, "upload_completion", saving)
        return ended.result

    return begin


def copies(bench: Bench, state: State) -> dict[str, Begin]:
    """Return the ways that only copy into host memory."""

    def to_cpu() -> Wait:
        copied = {name: tensor.to("cpu", copy=True) for name, tensor in state.items()}
        return copied.clear

    if not bench.on_gpu:
        return {"a plain copy": to_cpu}
    pinned = {name: torch.empty_like(tensor, device="cpu", pin_memory=True) for name, tensor in state.items()}
    side = torch.cuda.Stream()

    def copy_pinned() -> None:
        for name, tensor in state.items():
            pinned[name].copy_(tensor, non_blocking=True)

    def warm() -> Wait:
        copy_pinned()
        torch.cuda.current_stream().synchronize()
        return int

    def beside() -> Wait:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy_pinned()
        return side.synchronize

    return {
        "a plain .cpu() copy": to_cpu,
        "a warm pinned copy": warm,
        "a warm pinned copy beside the steps, which may not change the state": beside,
    }


def ways(bench: Bench, folder: Path, state: State, writer: ThreadPoolExecutor) -> dict[str, Begin]:
    options = StagingOptions(bench.on_gpu, False, False, bench.on_gpu)  # noqa: FBT003 positions are its interface

    def torch_save() -> Wait:
        save_and_sync_s(state, folder / "plain.pt")
        return int

    return {
        OURS: our_way(folder / "ours", state, writer),
        **copies(bench, state),
        "torch.save and fsync": torch_save,
        "DCP async_save": dcp_way(folder / FOLDERS["DCP async_save"], state, None),
        "DCP async_save, kept stager": dcp_way(
            folder / FOLDERS["DCP async_save, kept stager"], state, DefaultStager(options)
        ),
    }


def measure(bench: Bench, folder: Path, writer: ThreadPoolExecutor, layers: int, rounds: int) -> Iterator[Line]:
    state = make_state(layers, bench.pick(4096, 64), bench.device.type)
    size = sum(tensor.nbytes for tensor in state.values()) / 2**20
    what = f"checkpoint of {size:,.3g} MiB in the memory of the {bench.device.type}"
    begins = ways(bench, folder, state, writer)
    bench.finish()
    steps, leaves = Steps(bench), {name: folder / kept for name, kept in FOLDERS.items()}
    saves = {name: Save(bench, steps, begin, leaves.get(name)) for name, begin in begins.items()}
    first_ms = seconds(saves[OURS].hold) * 1000
    yield Row(name=f"{what}: the first holds, its memory is new", unit="ms", ours=(first_ms,), peers={})
    saves[OURS].wait()
    alone = Save(bench, steps, lambda: int)
    measures = {"alone": alone.stream_ms}
    for name, save in saves.items():
        measures[name] = save.stream_ms
        measures[f"{name}, held"] = lambda save=save: save.held_ms
    writing = [name for name in saves if name in (OURS, "torch.save and fsync") or name.startswith("DCP")]
    measures |= {f"{name}, durable": saves[name].ended_ms for name in writing}
    taken = in_turn(measures, rounds, warm_up=True)
    stalls = {name: stall(taken[name], taken["alone"]) for name in saves}
    name = f"{what}: the training's stream is stalled, of {BEFORE + AFTER} steps around it"
    yield Row(name=name, unit="ms", ours=stalls.pop(OURS), peers={**stalls, "the steps alone": taken["alone"]})
    held = {name: taken[f"{name}, held"] for name in saves}
    yield Row(name=f"{what}: the host is held, steps before it included", unit="ms", ours=held.pop(OURS), peers=held)
    ended = {name: taken[f"{name}, durable"] for name in writing}
    yield Row(name=f"{what}: until it is durable", unit="ms", ours=ended.pop(OURS), peers=ended)


def stall(whole: Samples, alone: Samples) -> Samples:
    return tuple(max(a - b, LEAST_MS) for a, b in zip(whole, alone, strict=True))


def lines(bench: Bench) -> Iterator[Line]:
    with ThreadPoolExecutor(1) as writer, group_of_one():
        for layers, rounds in bench.pick(((4, 7), (32, 3)), ((4, 1),)):
            with tempfile.TemporaryDirectory(dir=".") as folder:
                yield from measure(bench, Path(folder), writer, layers, rounds)


if __name__ == "__main__":
    print_part(lines)
