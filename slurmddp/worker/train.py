"""Trains a bundled task with DistributedDataParallel, by the public names of slurmddp alone."""

import io
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp
from slurmddp.errors import RankError
from slurmddp.rundir import write_whole
from slurmddp.runtime.session import Session
from slurmddp.worker.options import WorkerOptions
from slurmddp.worker.tasks import Task, make_task

MOMENTUM = 0.9
TEST_BATCH = 512


class Tally:
    """What this rank's steps gave since the last report."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        """Sum over this rank's samples."""
        self.samples = 0
        """Samples of all ranks."""
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.loss.zero_()
        self.samples = 0
        self._began, self._samples_here = time.monotonic(), 0

    def add(self, loss: Tensor, samples: int) -> None:
        """Count a step: this rank's loss, and the samples of all ranks."""
        self.loss += loss
        self.samples += samples
        self._samples_here += samples

    @property
    def time_s(self) -> float:
        """Seconds since the last report, or since this process began to train."""
        return time.monotonic() - self._began

    @property
    def samples_per_s(self) -> float:
        """Samples of all ranks a second, by the steps of this process."""
        return self._samples_here / self.time_s

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        return {"loss": self.loss, "samples": self.samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from sums."""
        self.loss.copy_(state_dict["loss"])
        self.samples = state_dict["samples"]


class Training:
    """One rank's part in the training of a task."""

    def __init__(self, ddp: Session, options: WorkerOptions, task: Task) -> None:
        torch.manual_seed(options.seed)
        self.ddp, self.options, self.task = ddp, options, task
        self.inputs, self.targets = (part.to(ddp.device) for part in task.train)
        self.model = _distributed(task.model().to(ddp.device), ddp.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr, momentum=MOMENTUM)
        self.sampler = slurmddp.Sampler(len(self.inputs), options.batch_size, seed=options.seed)
        self.tally = Tally(ddp.device)
        self.run = slurmddp.Checkpointer(
            model=self.model,
            optimizer=self.optimizer,
            sampler=self.sampler,
            own={"tally": self.tally},
            every_steps=options.checkpoint_every_steps,
            every_s=options.checkpoint_every_s,
            keep=options.keep_checkpoints,
        )

    def train(self) -> None:
        """Take every sample `epochs` times."""
        for _ in self.run.steps(epochs=self.options.epochs):
            first = self.sampler.consumed
            after = min(first + self.sampler.global_batch, self.options.epochs * len(self.inputs))
            self._step(first, after)
            if after // len(self.inputs) > first // len(self.inputs):
                self._report(after // len(self.inputs))
                self.tally.clear()

    def _step(self, first: int, after: int) -> None:
        """Take the samples from `first` to `after` of the stream, of which each rank has its share.

        The gradient is that of the mean over all ranks' samples. What a last batch holds behind `after` weighs nothing.
        """
        batch = self.sampler.indices(first).to(self.ddp.device)
        counts = (self.sampler.places(first) < after).to(self.ddp.device)
        self.model.train()  # type: ignore[no-untyped-call]  # torch leaves DDP's untyped
        losses = self.task.losses(self.model(self.inputs[batch]), self.targets[batch]) * counts
        self.optimizer.zero_grad()
        torch.autograd.backward(losses.sum() * (self.ddp.world_size / (after - first)))
        self.optimizer.step()
        self.tally.add(losses.detach().sum(), after - first)

    def _report(self, epoch: int) -> None:
        """Say and log how the steps since the last report went."""
        total = self.tally.loss.clone()
        dist.all_reduce(total)
        loss, accuracy, tally = float(total) / self.tally.samples, self._accuracy(), self.tally
        right = "" if accuracy is None else f"  accuracy {accuracy:.4f}"
        self.ddp.print(
            f"epoch {epoch}/{self.options.epochs}  loss {loss:.6f}{right}  "
            f"{tally.samples_per_s:.0f} samples/s  {tally.time_s:.2f} s"
        )
        speed = tally.samples_per_s
        self.run.log(epoch=epoch, loss=loss, accuracy=accuracy, samples_per_s=speed, lr=self.options.lr)

    @torch.no_grad()
    def _accuracy(self) -> float | None:
        """Return the fraction of the test samples classified rightly; each is counted by one rank."""
        ddp = self.ddp
        inputs, targets = (part[ddp.rank :: ddp.world_size].to(ddp.device) for part in self.task.test)
        self.model.eval()
        right = torch.zeros((), dtype=torch.int64, device=ddp.device)
        for some, wanted in zip(torch.split(inputs, TEST_BATCH), torch.split(targets, TEST_BATCH), strict=True):
            correct = self.task.correct(self.model.module(some), wanted)
            if correct is None:
                return None
            right += correct.sum()
        dist.all_reduce(right)
        return int(right) / len(self.task.test[0])


def train(options: WorkerOptions) -> None:
    """Train as one rank; rank 0 prints, writes the events and saves the model."""
    task = make_task(options)
    with slurmddp.init(options.device) as ddp:
        _say_header(ddp, options, task)
        training = Training(ddp, options, task)
        training.train()
        _finish(ddp, task, training.model.module)


def _distributed(model: nn.Module, device: torch.device) -> DistributedDataParallel:
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def _say_header(ddp: Session, options: WorkerOptions, task: Task) -> None:
    if not ddp.is_main:
        print(f"rank {ddp.rank} of {ddp.world_size} on {ddp.host}, device {ddp.device}", flush=True)  # noqa: T201
    total = _check_all_reduce(ddp)
    nodes = f"{ddp.nodes} node{'s' if ddp.nodes > 1 else ''}"
    ddp.print(
        f"world size {ddp.world_size} on {nodes} ({ddp.launcher}), all-reduce of rank + 1: {total}\n"
        f"device {ddp.device.type}, backend {dist.get_backend()}\n"
        f"task {options.task}, data {options.data}: {len(task.train[0])} training samples, "
        f"{len(task.test[0])} test samples, {options.epochs} epochs\n"
        f"global batch {options.batch_size * ddp.world_size} ({options.batch_size} a rank), "
        f"lr {options.lr}, seed {options.seed}"
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


def _finish(ddp: Session, task: Task, model: nn.Module) -> None:
    if not ddp.is_main:
        return
    report = task.report(model)
    if report:
        ddp.print(report)
    if ddp.run_dir is None:
        ddp.print("the model is not saved: this process was started by hand, without a run folder")
        return
    content = io.BytesIO()
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, content)
    write_whole(ddp.run_dir.model, content.getvalue())
    ddp.print(f"model saved to {ddp.run_dir.model}")
