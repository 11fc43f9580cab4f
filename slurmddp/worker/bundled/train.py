"""Trains a task on all ranks."""

import io
import itertools
import time
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import RankError
from slurmddp.runs.files import write_whole
from slurmddp.runtime.checkpoint.checkpointer import Checkpointer
from slurmddp.runtime.checkpoint.sampler import Sampler
from slurmddp.runtime.checkpoint.training_state import full_state_dict, unwrap
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.session import Session, init
from slurmddp.worker.bundled import model_setup
from slurmddp.worker.bundled.metrics import Board, StepMetrics
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.task import Batched, Examples, Task

Batch = tuple[Tensor, Tensor]
TEST_BATCH = 512
FIRST_LOG_S = 1.0
"""Seconds to the first log line, which shows that the training runs; each later interval is twice as long."""


class Training:
    """One rank's part in the training of a task."""

    def __init__(self, ddp: Session, options: WorkerOptions, task: Task) -> None:
        torch.manual_seed(options.seed)
        self.ddp, self.options, self.task = ddp, options, task
        self.examples = task.train.to(ddp.device) if isinstance(task.train, Batched) else task.train
        self.test = task.test.to(ddp.device) if isinstance(task.test, Batched) else task.test
        self.sampler = Sampler(len(task.train), options.batch_size * options.accumulate, seed=options.seed)
        self.samples = options.epochs * self.sampler.samples
        self.precision = model_setup.Precision(options, ddp.device)
        self.model = model_setup.wrap(task.model(), options, ddp.device, self.precision.dtype)
        self.optimizer = model_setup.make_optimizer(self.model.parameters(), options)
        torch.manual_seed(options.seed * ddp.world_size + ddp.rank + 1)  # augmentation and dropout differ between ranks
        self.metrics = StepMetrics(ddp.device)
        self.run = Checkpointer(
            model=self.model,
            optimizer=self.optimizer,
            scaler=self.precision.scaler,
            sampler=self.sampler,
            own={"tally": self.metrics},
            every_steps=options.checkpoint_every_steps,
            every_s=options.checkpoint_every_s,
            keep=options.keep_checkpoints,
        )
        self.board = Board(ddp.run_dir, self.run.step) if options.tensorboard and ddp.is_main and ddp.run_dir else None
        self._logged_at, self._patience_s = time.monotonic(), min(FIRST_LOG_S, options.log_every_s)

    def steps(self) -> Iterator[int]:
        """Train on every sample `epochs` times, with a step for each number that is yielded."""
        options = self.options
        self.model.train()
        batches = training_batches(
            self.examples, self.sampler, options.batch_size, workers=options.workers, device=self.ddp.device
        )
        for step in self.run.steps(epochs=options.epochs):
            first = self.sampler.consumed
            after = min(first + self.sampler.global_batch, self.samples)
            rate = model_setup.scheduled_rate(options, self.ddp.world_size, step=step, progress=first / self.samples)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            if first // self.sampler.samples > (first - self.metrics.samples) // self.sampler.samples:
                self.metrics.clear()  # not at the end of the step before, whose state a survivor already has
            loss = self._step([next(batches) for _ in range(options.accumulate)], first, after)
            if after // self.sampler.samples > first // self.sampler.samples:
                self._report_epoch(after // self.sampler.samples)
            elif self.ddp.is_main and time.monotonic() > self._logged_at + self._patience_s:
                self._log(loss=float(loss) * self.ddp.world_size / (after - first))
            yield step

    def _step(self, batches: list[Batch], first: int, after: int) -> Tensor:
        """Train on this rank's share of the samples from `first` to `after` of the stream.

        The gradient is that of the mean loss over the samples of all ranks; samples from `after` on have weight 0.
        Counts the sum of this rank's losses, before the optimizer begins, and returns it.
        """
        self.optimizer.zero_grad()
        share = self.ddp.world_size / (after - first)
        sums = []
        all_weights: Iterable[Tensor | None] = itertools.repeat(None)  # for None all are 1
        if after - first < self.sampler.global_batch:
            counts = (self.sampler.positions(first) < after).to(self.ddp.device)
            all_weights = torch.split(counts, self.options.batch_size)
        for number, ((inputs, targets), weights) in enumerate(zip(batches, all_weights)):
            with model_setup.sync_gradients(self.model, last=number == len(batches) - 1):
                with self.precision.forward():
                    outputs = self.model(self._prepare_inputs(self.task.transform(inputs)))
                    losses = self.task.losses(outputs, self.precision.cast(targets))
                self._check_shape("losses()", losses, inputs)
                shares = torch.full_like(losses, share) if weights is None else weights * torch.full_like(losses, share)
                torch.autograd.backward(losses, self.precision.scaler.scale(shares))
            sums.append((losses if weights is None else losses * weights).detach().sum())
        loss = sum(sums[1:], start=sums[0])
        self.metrics.add(loss, after - first)
        self.precision.scaler.step(self.optimizer)
        self.precision.scaler.update()
        return loss

    def _check_shape(self, what: str, values: object, inputs: Tensor) -> None:
        """Raise RankError unless there is one number for each sample; otherwise the weights would be wrong."""
        if not isinstance(values, Tensor) or values.shape != inputs.shape[:1]:
            found = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"{values!r:.40}"
            raise RankError(
                f"--task {self.options.task}: {what} gave {found} for {len(inputs)} samples; "
                f"return a number for each, a tensor of shape ({len(inputs)},)"
            )

    def _prepare_inputs(self, inputs: Tensor) -> Tensor:
        """Convert inputs to the precision and the memory format of the weights."""
        inputs = self.precision.cast(inputs)
        images = self.options.channels_last and inputs.dim() == 4  # noqa: PLR2004 - samples, channels, height, width
        return inputs.contiguous(memory_format=torch.channels_last) if images else inputs

    def _report_epoch(self, epoch: int) -> None:
        """Print and log the loss and the metrics of an epoch."""
        total = self.metrics.loss.clone()
        dist.all_reduce(total)
        loss, measured = float(total) / self.metrics.samples, self._measure_test_set()
        words = "".join(f"  {name} {value:.4f}" for name, value in measured.items())
        self.ddp.print(
            f"epoch {epoch}/{self.options.epochs}  loss {loss:.6f}{words}  "
            f"{self.metrics.samples_per_s:.0f} samples/s  {self.metrics.time_s:.2f} s"
        )
        self._log(epoch=epoch, loss=loss, **measured)

    def _log(self, **values: float) -> None:
        self._logged_at, self._patience_s = time.monotonic(), min(2 * self._patience_s, self.options.log_every_s)
        values |= {"samples_per_s": self.metrics.samples_per_s, "lr": self.optimizer.param_groups[0]["lr"]}
        self.run.log(**values)
        if self.board:
            self.board.log(self.run.step, values)

    @torch.no_grad()
    def _measure_test_set(self) -> dict[str, float]:
        """Return the means of the task's metrics over the test set, which is divided among the ranks."""
        if self.test is None:
            return {}
        ddp, model = self.ddp, unwrap(self.model).eval()
        sums: dict[str, Tensor] = {}
        for inputs, targets, weight in test_batches(
            self.test, TEST_BATCH, share=(ddp.rank, ddp.world_size), workers=self.options.workers, device=ddp.device
        ):
            with self.precision.forward():
                found = self.task.metrics(model(self._prepare_inputs(inputs)), self.precision.cast(targets))
            for name, values in found.items():
                self._check_shape(f"metrics() for {name}", values, inputs)
                sums[name] = sums.get(name, 0) + (values * weight).sum(dtype=torch.float64)
        self.model.train()
        for total in sums.values():
            dist.all_reduce(total)
        return {name: float(total) / len(self.test) for name, total in sums.items()}


def train(options: WorkerOptions) -> None:
    """Train as one rank; rank 0 prints, writes the events and saves the model."""
    task = make_task(options)
    with init(options.device) as ddp:
        if options.needs_gpu and ddp.device.type != "cuda":
            raise RankError(f"{options.needs_gpu}, and there is none on {ddp.host}")
        _print_header(ddp, options, task)
        training = Training(ddp, options, task)
        for _ in training.steps():
            pass
        _save_model(training)


def _print_header(ddp: Session, options: WorkerOptions, task: Task) -> None:
    if not ddp.is_main:
        print_line(f"rank {ddp.rank} of {ddp.world_size} on {ddp.host}, device {ddp.device}")
    total, wanted = torch.tensor(ddp.rank + 1, device=ddp.device), ddp.world_size * (ddp.world_size + 1) // 2
    dist.all_reduce(total)
    if int(total) != wanted:
        raise RankError(f"the all-reduce of rank + 1 over {ddp.world_size} ranks gave {int(total)}, not {wanted}")
    nodes = f"{ddp.nodes} node{'s' if ddp.nodes > 1 else ''}"
    tests = 0 if task.test is None else len(task.test)
    times = f" x {options.accumulate}" if options.accumulate > 1 else ""
    batch = options.batch_size * options.accumulate * ddp.world_size
    ddp.print(
        f"world size {ddp.world_size} on {nodes} ({ddp.launcher}), all-reduce of rank + 1: {wanted}\n"
        f"device {ddp.device.type}, backend {dist.get_backend()}, {options.strategy}, {options.precision}\n"
        f"task {options.task}, data {options.source or 'its own'}: {len(task.train)} training samples, "
        f"{tests} test samples, {options.epochs} epochs\n"
        f"global batch {batch} ({options.batch_size}{times} a rank), "
        f"{options.optimizer}, lr {model_setup.scaled_rate(options, ddp.world_size):g}, seed {options.seed}"
    )


def _save_model(training: Training) -> None:
    """Save the trained model."""
    ddp, options = training.ddp, training.options
    if options.save_all_ranks and ddp.run_dir:
        write_whole(ddp.run_dir.rank_model(ddp.rank), _bytes(unwrap(training.model).state_dict()))
    state = full_state_dict(training.model)
    if not ddp.is_main:
        return
    if ddp.run_dir is None:
        ddp.print("the model is not saved: this process has no run folder")
        return
    write_whole(ddp.run_dir.model, _bytes(state))
    ddp.print(f"model saved to {ddp.run_dir.model}")


def _bytes(state: dict[str, Tensor]) -> bytes:
    """Save in host memory."""
    content = io.BytesIO()
    torch.save({name: value.detach().cpu() for name, value in state.items()}, content)
    return content.getvalue()


def training_batches(
    examples: Examples, sampler: Sampler, batch_size: int, *, workers: int, device: torch.device
) -> Iterator[Batch]:
    """Yield this rank's batches on the device, beginning at the sampler's position, without end.

    A step of the sampler gives `sampler.batch_size / batch_size` of them.
    """
    seed = torch.initial_seed() + sampler.consumed  # differs between ranks, and after a resume
    steps = itertools.count(sampler.consumed, sampler.global_batch)
    parts = (part for first in steps for part in torch.split(sampler.indices(first), batch_size))
    return _batches(examples, parts, workers=workers, device=device, seed=seed)


def test_batches(
    examples: Examples, batch_size: int, *, share: tuple[int, int], workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, targets and weights of a rank's share of all samples; `share` is (rank, world size).

    Every rank has the same number of batches of the same size. A sample that only fills a batch has weight 0.
    """
    rank, ranks = share
    positions = torch.arange(rank, -(-len(examples) // ranks) * ranks, ranks)
    weights = torch.split(positions < len(examples), batch_size)
    parts = torch.split(positions.clamp(max=len(examples) - 1), batch_size)
    for (inputs, targets), weight in zip(_batches(examples, iter(parts), workers=workers, device=device), weights):
        yield inputs, targets, weight.to(device)


def _batches(
    examples: Examples, parts: Iterator[Tensor], *, workers: int, device: torch.device, seed: int = 0
) -> Iterator[Batch]:
    if isinstance(examples, Batched):
        return (examples.batch(part.to(device)) for part in parts)
    loader: DataLoader[Batch] = DataLoader(
        examples,  # type: ignore[arg-type]  # torch declares its own class, but accepts any
        batch_sampler=(part.tolist() for part in parts),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(seed),  # keeps the rank's default generator unchanged
    )
    return ((inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)) for inputs, targets in loader)
