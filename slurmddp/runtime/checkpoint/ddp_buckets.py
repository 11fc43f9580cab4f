"""Makes a resumed run sum gradients in the same order as a run that was never interrupted.

After the first backward, DistributedDataParallel rebuilds its buckets in the order in which the gradients became ready.
The position of an element in its bucket decides in which order more than two ranks sum it. Without further action, a
resumed run would take its first step with the initial buckets, and its result would differ in the last bits. Therefore
a checkpoint holds that order. Before the first resumed step, a backward pass of zeros through the parameters in that
order makes DistributedDataParallel build the same buckets again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


class Layout:
    """The order in which one model's gradients became ready in its first backward."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.wrapper = model
        rebuilds = not (model.static_graph or model.find_unused_parameters)
        self._model = model if rebuilds else None
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._hooks: list[Any] = []
        self._ready: list[int] = []
        self.order: list[int] = []
        """Indices among the parameters that require a gradient; empty before the first step."""

    def watch(self) -> None:
        """Record the order during the step that begins now, unless it is known."""
        if self._model is None or self.order:
            return
        for place, parameter in enumerate(self._parameters):
            if not parameter.requires_grad:
                continue
            hook = parameter.register_post_accumulate_grad_hook(lambda _, place=place: self._ready.append(place))  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self._hooks.append(hook)

    def settle(self) -> None:
        """Keep the order of the step that has just ended: that of its last backward, which was all-reduced."""
        for hook in self._hooks:
            hook.remove()
        order = self._ready[-len(self._parameters) :]
        if self._ready:
            self.order = order if self._fits(order) else []
            self._model = self._model if self.order else None
        self._hooks, self._ready = [], []

    def restore(self, order: list[int]) -> None:
        """Make a fresh model build the buckets that follow from `order`, all ranks together.

        Parameters, gradients and random numbers do not change; buffers become those of rank 0, as in each forward. A
        model with other parameters is left alone. A backward pass makes the gradients ready in that order, by torch's
        own steps before and after a forward, with a chain in place of the program's module, so that neither its code
        nor its hooks run. torch has no public names for them (2.4 to 2.13). With `device_ids`, it needs an input.
        """
        if self._model is None or not self._fits(order):
            return
        gradients = [parameter.grad for parameter in self._parameters]
        self._model._pre_forward(None)  # type: ignore[no-untyped-call]  # noqa: SLF001 - as above
        end = torch.zeros((), device=self._parameters[0].device, requires_grad=True)
        for place in reversed(order):
            end = _Link.apply(end, self._parameters[place])  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._model._post_forward(end).backward()  # type: ignore[no-untyped-call]  # noqa: SLF001 - as above
        for parameter, gradient in zip(self._parameters, gradients):
            parameter.grad = gradient
        self.order = order

    def _fits(self, order: list[int]) -> bool:
        return sorted(order) == list(range(len(self._parameters)))


class _Link(torch.autograd.Function):
    """Adds nothing; its backward makes the parameter's gradient ready before those earlier in the chain."""

    @staticmethod
    def forward(ctx: Any, before: Tensor, parameter: Tensor) -> Tensor:
        ctx.save_for_backward(parameter)
        return before.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (parameter,) = ctx.saved_tensors
        return gradients[0], torch.zeros_like(parameter)
