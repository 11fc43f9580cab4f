"""Makes a resumed run add gradients up in the same order as one that was never interrupted.

DistributedDataParallel lays its buckets out anew after the first backward, in the order in which gradients became
ready, and an element's place in its bucket decides in which order more than two ranks add it up. A resumed run would
take its first step with the first layout, and differ in the last bits. So the order is part of a checkpoint, and
before the first resumed step a backward of zeros, through a chain of the parameters in that order, brings
DistributedDataParallel to the layout that it had.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Layout:
    """The order in which one model's gradients became ready in its first backward."""

    def __init__(self, model: DistributedDataParallel) -> None:
        anew = not (model.static_graph or model.find_unused_parameters)
        self._model = model if anew else None
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._hooks: list[Any] = []
        self._ready: list[int] = []
        self.order: list[int] = []
        """The parameters' places among those with a gradient; empty before the first step."""

    def watch(self) -> None:
        """Take note of the order during the step that begins now, unless it is known."""
        if self._model is None or self.order:
            return
        for place, parameter in enumerate(self._parameters):
            if not parameter.requires_grad:
                continue
            hook = parameter.register_post_accumulate_grad_hook(lambda _, place=place: self._ready.append(place))  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self._hooks.append(hook)

    def settle(self) -> None:
        """Keep the order of the step that has just ended; its last backward is the one that was reduced."""
        for hook in self._hooks:
            hook.remove()
        order = self._ready[-len(self._parameters) :]
        if self._ready:
            self.order = order if self._fits(order) else []
            self._model = self._model if self.order else None
        self._hooks, self._ready = [], []

    def restore(self, order: list[int]) -> None:
        """Bring a fresh model to the layout that follows from `order`, all ranks together.

        Parameters, gradients, buffers and randomness stay as they are. Nothing happens to a model whose parameters
        are others.
        """
        if self._model is None or not self._fits(order):
            return
        gradients = [parameter.grad for parameter in self._parameters]
        buffers = [buffer.clone() for buffer in self._model.module.buffers()]
        _backward_of_zeros(self._model, [self._parameters[place] for place in reversed(order)])
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        for buffer, content in zip(self._model.module.buffers(), buffers, strict=True):
            buffer.copy_(content)
        self.order = order

    def _fits(self, order: list[int]) -> bool:
        return sorted(order) == list(range(len(self._parameters)))


def layouts(parts: Mapping[str, nn.Module]) -> dict[str, Layout]:
    """Return the layout of each DistributedDataParallel in these modules, at whatever depth, by part and path."""
    found: dict[str, Layout] = {}
    for name, part in parts.items():
        for path, module in part.named_modules():
            if isinstance(module, DistributedDataParallel):
                found[f"{name}/{path}"] = Layout(module)
    return found


def _backward_of_zeros(model: DistributedDataParallel, parameters: list[nn.Parameter]) -> None:
    """Let the gradients become ready from the last of the parameters to the first."""
    with _only_forward(model.module, parameters):
        model().backward()


class _only_forward:  # noqa: N801 - a context manager reads as a verb
    """Let the module's forward be the chain, without the hooks that the program may have put around it."""

    def __init__(self, module: nn.Module, parameters: list[nn.Parameter]) -> None:
        self._module, self._parameters = module, parameters
        self._hooks: dict[str, Any] = {}
        self._own = vars(module).get("forward")

    def __enter__(self) -> None:
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            self._hooks[name] = getattr(self._module, name)
            setattr(self._module, name, type(self._hooks[name])())
        self._module.forward = self._chain

    def __exit__(self, *_: object) -> None:
        del self._module.forward
        if self._own is not None:  # of torch.compile, or of a program that has put one there
            self._module.forward = self._own
        for name, hooks in self._hooks.items():
            setattr(self._module, name, hooks)

    def _chain(self) -> Tensor:
        end = torch.zeros((), device=self._parameters[0].device, requires_grad=True)
        for parameter in self._parameters:
            end = _Link.apply(end, parameter)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return end


class _Link(torch.autograd.Function):
    """Adds nothing; its backward makes the parameter's gradient ready before those further down the chain."""

    @staticmethod
    def forward(ctx: Any, before: Tensor, parameter: Tensor) -> Tensor:
        ctx.save_for_backward(parameter)
        return before.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (parameter,) = ctx.saved_tensors
        return gradients[0], torch.zeros_like(parameter)
