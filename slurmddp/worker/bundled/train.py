"""Trains a task on all ranks."""

import io
import itertools
import time
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import RankError
from slurmddp.runs.layout import write_whole
from slurmddp.runtime.checkpoint.checkpointer import Checkpointer
from slurmddp.runtime.checkpoint.sampler import Sampler
from slurmddp.runtime.checkpoint.state import bare, full_state_dict
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.session import Session, init
from slurmddp.worker.bundled.batches import Batch, measuring_batches, training_batches
from slurmddp.worker.bundled.optimizer import Precision, base_rate, make_optimizer, rate, set_rate
from slurmddp.worker.bundled.parallelize import synchronised, wrap
from slurmddp.worker.bundled.step_metrics import Tally
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.bundled.tensorboard import Board
from slurmddp.worker.task import Batched, Examples, Task

TEST_BATCH = 512
FIRST_LOG_S = 1.0
"""The first numbers come soon, so that whoever looks sees that it runs; then each later than the one before."""


class Training:
    """One rank's part in the training of a task."""

    def __init__(self, ddp: Session, options: WorkerOptions, task: Task) -> None:
        torch.manual_seed(options.seed)
        self.ddp, self.options, self.task = ddp, options, task
        self.examples, self.test = (
            _placed(task.train, ddp.device),
            _placed(task.test, ddp.device) if task.test is not None else None,
        )
        self.sampler = Sampler(len(task.train), options.batch_size * options.accumulate, seed=options.seed)
        self.samples = options.epochs * self.sampler.samples
        self.precision = Precision(options, ddp.device)
        total = self.sampler.steps_until(options.epochs)
        self.model = wrap(task.model(), options, ddp.device, dtype=self.precision.dtype, total=total)
        self.optimizer = make_optimizer(self.model.parameters(), options)
        torch.manual_seed(options.seed * ddp.world_size + ddp.rank + 1)  # augmentation and dropout are each rank's own
        self.tally = Tally(ddp.device)
        self.run = Checkpointer(
            model=self.model,
            optimizer=self.optimizer,
            scaler=self.precision.scaler,
            sampler=self.sampler,
            own={"tally": self.tally},
            every_steps=options.checkpoint_every_steps,
            every_s=options.checkpoint_every_s,
            keep=options.keep_checkpoints,
        )
        self.board = Board(ddp.run_dir, self.run.step) if options.tensorboard and ddp.is_main and ddp.run_dir else None
        self._logged_at, self._patience_s = time.monotonic(), min(FIRST_LOG_S, options.log_every_s)

    def train(self) -> None:
        """Take every sample `epochs` times."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[int]:
        """Take a step each time the next is asked for, and yield its number."""
        options = self.options
        batches = training_batches(
            self.examples, self.sampler, options.batch_size, workers=options.workers, device=self.ddp.device
        )
        for step in self.run.steps(epochs=options.epochs):
            first = self.sampler.consumed
            after = min(first + self.sampler.global_batch, self.samples)
            set_rate(self.optimizer, self._rate(step, first))
            loss = self._step([next(batches) for _ in range(options.accumulate)], first, after)
            self.tally.add(loss, after - first)
            if after // self.sampler.samples > first // self.sampler.samples:
                self._report(after // self.sampler.samples)
                self.tally.clear()
            elif self.ddp.is_main and time.monotonic() > self._logged_at + self._patience_s:
                self._log(loss=float(loss) * self.ddp.world_size / (after - first))
            yield step

    def _step(self, batches: list[Batch], first: int, after: int) -> Tensor:
        """Take the samples from `first` to `after` of the stream, in batches of which each rank has its share.

        The gradient is that of the mean over all ranks' samples; what a last batch holds behind `after` weighs
        nothing. Returns the sum of this rank's losses.
        """
        self.model.train()
        self.optimizer.zero_grad()
        share = self.ddp.world_size / (after - first)
        losses = []
        for number, ((inputs, targets), weights) in enumerate(zip(batches, self._weights(first, after), strict=False)):
            with synchronised(self.model, number == len(batches) - 1):
                loss = self._losses(inputs, targets)
                loss = (loss if weights is None else loss * weights).sum()
                torch.autograd.backward(self.precision.scaler.scale(loss * share))
            losses.append(loss.detach())
        self.precision.scaler.step(self.optimizer)
        self.precision.scaler.update()
        return sum(losses[1:], start=losses[0])

    def _weights(self, first: int, after: int) -> Iterable[Tensor | None]:
        """Return for each batch what its samples weigh: 1, and 0 behind `after`; None for 1 all through."""
        if after - first == self.sampler.global_batch:
            return itertools.repeat(None)
        return torch.split((self.sampler.places(first) < after).to(self.ddp.device), self.options.batch_size)

    def _losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with self.precision.forward():
            outputs = self.model(self._formed(self.task.transform(inputs)))
            losses = self.task.losses(outputs, self.precision.cast(targets))
        self._check_shape("losses()", losses, inputs)
        return losses

    def _check_shape(self, what: str, values: object, inputs: Tensor) -> None:
        """Raise RankError for what is not one number a sample: it would be weighed wrongly."""
        if not isinstance(values, Tensor) or values.shape != inputs.shape[:1]:
            found = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"{values!r:.40}"
            raise RankError(
                f"--task {self.options.task}: {what} gave {found} for {len(inputs)} samples; "
                f"return a number for each, a tensor of shape ({len(inputs)},)"
            )

    def _formed(self, inputs: Tensor) -> Tensor:
        """Return inputs in the precision and the layout of the weights."""
        inputs = self.precision.cast(inputs)
        images = self.options.channels_last and inputs.dim() == 4  # noqa: PLR2004 - samples, channels, height, width
        return inputs.contiguous(memory_format=torch.channels_last) if images else inputs

    def _rate(self, step: int, first: int) -> float:
        return rate(self.options, self.ddp.world_size, step=step, progress=first / self.samples)

    def _report(self, epoch: int) -> None:
        """Say and log how the steps since the last report went."""
        total = self.tally.loss.clone()
        dist.all_reduce(total)
        loss, metrics, tally = float(total) / self.tally.samples, self._measure(), self.tally
        words = "".join(f"  {name} {value:.4f}" for name, value in metrics.items())
        self.ddp.print(
            f"epoch {epoch}/{self.options.epochs}  loss {loss:.6f}{words}  "
            f"{tally.samples_per_s:.0f} samples/s  {tally.time_s:.2f} s"
        )
        self._log(epoch=epoch, loss=loss, **metrics)

    def _log(self, **values: float) -> None:
        self._logged_at, self._patience_s = time.monotonic(), min(2 * self._patience_s, self.options.log_every_s)
        values |= {"samples_per_s": self.tally.samples_per_s, "lr": self.optimizer.param_groups[0]["lr"]}
        self.run.log(**values)
        if self.board:
            self.board.log(self.run.step, values)

    @torch.no_grad()
    def _measure(self) -> dict[str, float]:
        """Return the means of the task's metrics over the test samples, each of which one rank looks at."""
        if self.test is None:
            return {}
        ddp, model = self.ddp, bare(self.model).eval()
        sums: dict[str, Tensor] = {}
        for inputs, targets, weight in measuring_batches(
            self.test, TEST_BATCH, share=(ddp.rank, ddp.world_size), workers=self.options.workers, device=ddp.device
        ):
            with self.precision.forward():
                found = self.task.metrics(model(self._formed(inputs)), self.precision.cast(targets))
            for name, values in found.items():
                self._check_shape(f"metrics() for {name}", values, inputs)
                sums[name] = sums.get(name, 0) + (values * weight).sum(dtype=torch.float64)
        for total in sums.values():
            dist.all_reduce(total)
        return {name: float(total) / len(self.test) for name, total in sums.items()}


def train(options: WorkerOptions) -> None:
    """Train as one rank; rank 0 prints, writes the events and saves the model."""
    task = make_task(options)
    with init(options.device) as ddp:
        if options.needs_gpu and ddp.device.type != "cuda":
            raise RankError(f"{options.needs_gpu}, and there is none on {ddp.host}")
        _say_header(ddp, options, task)
        training = Training(ddp, options, task)
        training.train()
        _finish(training)


def _placed(examples: Examples, device: torch.device) -> Examples:
    return examples.to(device) if isinstance(examples, Batched) else examples


def _say_header(ddp: Session, options: WorkerOptions, task: Task) -> None:
    if not ddp.is_main:
        print_line(f"rank {ddp.rank} of {ddp.world_size} on {ddp.host}, device {ddp.device}")
    total = _check_all_reduce(ddp)
    nodes = f"{ddp.nodes} node{'s' if ddp.nodes > 1 else ''}"
    tests = 0 if task.test is None else len(task.test)
    times = f" x {options.accumulate}" if options.accumulate > 1 else ""
    batch = options.batch_size * options.accumulate * ddp.world_size
    ddp.print(
        f"world size {ddp.world_size} on {nodes} ({ddp.launcher}), all-reduce of rank + 1: {total}\n"
        f"device {ddp.device.type}, backend {dist.get_backend()}, {options.strategy}, {options.precision}\n"
        f"task {options.task}, data {options.source or 'its own'}: {len(task.train)} training samples, "
        f"{tests} test samples, {options.epochs} epochs\n"
        f"global batch {batch} ({options.batch_size}{times} a rank), "
        f"{options.optimizer}, lr {base_rate(options, ddp.world_size):g}, seed {options.seed}"
    )


def _check_all_reduce(ddp: Session) -> int:
    """Return the sum of rank + 1 over all ranks.

    Raises RankError when it is not what it must be.
    """
    total = torch.tensor(ddp.rank + 1, device=ddp.device)
    dist.all_reduce(total)
    wanted = ddp.world_size * (ddp.world_size + 1) // 2
    if int(total) != wanted:
        raise RankError(f"the all-reduce of rank + 1 over {ddp.world_size} ranks gave {int(total)}, not {wanted}")
    return wanted


def _finish(training: Training) -> None:
    """Save the trained model, and let the task say a word on it."""
    ddp, options, task = training.ddp, training.options, training.task
    if options.save_all_ranks and ddp.run_dir:
        write_whole(ddp.run_dir.rank_model(ddp.rank), _bytes(bare(training.model).state_dict(keep_vars=True)))
    state = full_state_dict(training.model)
    if not ddp.is_main:
        return
    model = task.model().to(training.precision.dtype)
    model.load_state_dict(state)
    report = task.report(model.eval())
    if report:
        ddp.print(report)
    if ddp.run_dir is None:
        ddp.print("the model is not saved: this process was started by hand, without a run folder")
        return
    write_whole(ddp.run_dir.model, _bytes(state))
    ddp.print(f"model saved to {ddp.run_dir.model}")


def _on_cpu(value: Tensor) -> Tensor:
    """Return a tensor in host memory; a parameter stays one, so that `slurmddp compare` can tell it from a buffer."""
    plain = value.detach().cpu()
    return nn.Parameter(plain, value.requires_grad) if isinstance(value, nn.Parameter) else plain


def _bytes(state: dict[str, Tensor]) -> bytes:
    content = io.BytesIO()
    torch.save({name: _on_cpu(value) for name, value in state.items()}, content)
    return content.getvalue()
