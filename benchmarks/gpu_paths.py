"""The ways to train the bundled gpt on one GPU: each takes its steps, and its loss is finite.

python benchmarks/gpu_paths.py [--cpu]
"""

import math
from collections.abc import Iterator
from typing import Any

from blocks import block_s, in_ms
from gpu_device import FAILED, Bench, Line, print_part
from gpu_trainings import Blocks, make_long, options_for, train
from rows import Row, in_turn

import slurmddp
from slurmddp.runtime.session import Session

PLAIN = "fp32"
PATHS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "bf16": {"precision": "bf16"},
    "fp16 with its scaler": {"precision": "fp16"},
    "bf16, torch.compile": {"precision": "bf16", "compile": True},
    "FSDP2, fp32": {"strategy": "fsdp"},
    "FSDP2, bf16": {"strategy": "fsdp", "precision": "bf16"},
    "FSDP2, bf16, torch.compile": {"strategy": "fsdp", "precision": "bf16", "compile": True},
}
TINY = {"tokens": 256, "context": 128, "layers": 1, "heads": 1, "width": 8}
"""On the CPU, where torch.compile of the whole takes a minute."""


class Way:
    """A training that is taken block by block."""

    def __init__(self, ddp: Session, bench: Bench, name: str) -> None:
        options = options_for("gpt", bench.pick(64, 2), **PATHS[name])
        shape = None if bench.on_gpu else TINY
        self._training = train(ddp, make_long(options, bench.pick(32, 1), shape))
        self._steps = bench.pick(20, 2)
        self._blocks = Blocks(bench, self._steps).of_worker(self._training)

    def step_s(self) -> float:
        """Return the seconds of a step in the next block."""
        return block_s(self._blocks, self._steps)

    @property
    def loss(self) -> float:
        """The mean loss of the steps of this epoch, in nats."""
        return float(self._training.metrics.loss) / self._training.metrics.samples


def lines(bench: Bench) -> Iterator[Line]:
    with slurmddp.init("cuda" if bench.on_gpu else "cpu") as ddp:
        paths: dict[str, Way] = {}
        without: dict[str, str] = {}
        for name, given in PATHS.items():
            if given.get("precision") == "fp16" and not bench.on_gpu:
                without[name] = "needs a GPU"
                continue
            try:
                paths[name] = Way(ddp, bench, name)
                first_s = paths[name].step_s()
            except Exception as error:  # noqa: BLE001 the other ways are still to be tried
                paths.pop(name, None)
                without[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                yield f"{FAILED}: a step of gpt, {name}: {without[name]}"
            else:
                loss = paths[name].loss
                begin = "  " if math.isfinite(loss) else f"{FAILED}: "
                yield f"{begin}{name}: loss {loss:.3f}, the first steps take {first_s * 1000:.3g} ms each"
        taken = in_turn({name: path.step_s for name, path in paths.items()}, bench.pick(10, 1), warm_up=True)
        wrong = [name for name, path in paths.items() if not math.isfinite(path.loss)]
        if wrong:
            yield f"{FAILED}: the loss is not finite: {', '.join(wrong)}"
    if PLAIN in taken:
        measured = {name: in_ms(samples) for name, samples in taken.items()}
        ours = measured.pop(PLAIN)
        yield Row(name=f"a step of gpt, {PLAIN}, DDP of one rank", unit="ms", ours=ours, peers={**measured, **without})


if __name__ == "__main__":
    print_part(lines)
