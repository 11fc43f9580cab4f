"""The state of a training that a checkpoint holds: collected before a save, put back after a start. No files.

A checkpoint has these files, and those of `sharded` when a part is divided among the ranks:
model.pt    the model's state_dict; left out when the model is divided
state.pt    the step, the states of the other parts that are not divided, the order of the gradients
ranks.pt    for each rank, the state that only this rank has

The model's entries have the names of the plain module, without `module.` of DistributedDataParallel or DataParallel
and without `_orig_mod.` of torch.compile. So `torch.load(".../model.pt")` fits the model of the training script.
"""

import ctypes
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint.ddp_buckets import Layout
from slurmddp.runtime.checkpoint.staging import State, check_plain

MODEL, STATE, RANKS = "model.pt", "state.pt", "ranks.pt"
_MT19937_BYTES = 2500
"""Of 624 numbers and the position (numpy/random/src)."""


class Stateful(Protocol):
    """An object with a state: an optimizer, a scheduler, a scaler, a sampler, a module."""

    def state_dict(self) -> State:
        """Return the state, of plain values and tensors."""

    def load_state_dict(self, state_dict: State) -> Any:
        """Restore a state."""


class TrainingState:
    """The model and the other parts of a training, sorted by which ranks hold their state.

    Raises RankError when a checkpoint cannot hold a state that this rank has in full.
    """

    def __init__(
        self, *, model: nn.Module, shared: Mapping[str, Stateful], own: Mapping[str, Stateful], device: torch.device
    ) -> None:
        self._model, self._own, self._device = model, own, device
        self.parts: dict[str, Stateful] = {"model": model, **shared}
        """All parts whose state is the same on all ranks, or divided among them."""
        self.modules = {name: part for name, part in self.parts.items() if isinstance(part, nn.Module)}
        self.divided = {name: part for name, part in self.parts.items() if is_divided(part)}
        """Parts of which each rank holds only pieces."""
        self._replicated = {name: part for name, part in shared.items() if name not in self.divided}
        self.layouts = {
            f"{name}/{path}": Layout(module)
            for name, part in self.modules.items()
            for path, module in part.named_modules()
            if isinstance(module, DistributedDataParallel)
        }
        """Of each DistributedDataParallel in these modules, at any depth, by part and path."""
        self.wrappers: list[Any] = [layout.wrapper for layout in self.layouts.values()]
        self._random: State | None = None
        self._numpy: tuple[bytes, tuple[Any, ...]] = (b"", ())
        """numpy's generator as it lies in memory, and its state."""
        check_plain(_states_of(self._replicated))
        check_plain(_states_of(self._own))

    def collect_others(self, *, with_states: bool = False) -> State:
        """Return the states of the parts that are neither modules nor optimizers, and the optimizers' options."""
        parts, options, states = State(), State(), State()
        for name, part in self._replicated.items():
            if isinstance(part, torch.optim.Optimizer):
                options[name] = [{key: group[key] for key in group if key != "params"} for group in part.param_groups]
                if with_states:
                    states[name] = [*part.state.values()]
            elif not isinstance(part, nn.Module):
                parts[name] = state_of(part)
        return {"parts": parts, "options": options, "states": states}

    def collect_files(self, step: int) -> dict[str, Any]:
        """Return the contents of model.pt and state.pt; nothing is copied."""
        layouts = {name: layout.order for name, layout in self.layouts.items()}
        shared = {"step": step, "layouts": layouts, "parts": _states_of(self._replicated)}
        model = {} if "model" in self.divided else {MODEL: state_of(self._model)}
        return {**model, STATE: shared}

    def collect_own(self, *, with_buffers: bool = True) -> State:
        """Return the state of this rank only: random numbers, buffers, communication hooks, and `own`."""
        generators: State = {"torch": torch.get_rng_state(), "python": random.getstate()}
        if self._device.type == "cuda":
            generators["cuda"] = torch.cuda.get_rng_state(self._device)
        if "numpy" in sys.modules:
            generators["numpy"] = self._read_numpy()
        hooks: dict[str, list[State]] = {name: [] for name in self.modules}
        for name in self.modules:
            for hook in self._hooks(name):  # the fields of a PowerSGDState; its generator becomes plain values
                fields = {field: getattr(hook, field) for field in hook.__slots__ if field != "process_group"}
                hooks[name].append({**fields, "rng": _plain_state(hook.rng)})
        buffers = {
            name: {path: buffer.detach().cpu() for path, buffer in unwrap(module).named_buffers()}
            for name, module in (self.modules if with_buffers else {}).items()
        }
        return {"random": generators, "buffers": buffers, "hooks": hooks, "own": _states_of(self._own)}

    def find_broadcast(self) -> set[int]:
        """Return the ids of the buffers that all other ranks take from rank 0 in the next forward."""
        return {
            id(buffer)
            for wrapper in self.wrappers
            if wrapper.process_group is dist.group.WORLD and "buffer_hook" not in vars(wrapper)
            if wrapper.will_sync_module_buffers()
            for buffer in wrapper.modules_buffers
        }

    def _hooks(self, name: str) -> list[Any]:
        """Return the states of a module's communication hooks that keep values from step to step."""
        wrapped = [layout.wrapper for key, layout in self.layouts.items() if key.startswith(f"{name}/")]
        states = [state for part in wrapped for _, state in getattr(part, "_comm_hooks", [])]
        return [state for state in states if hasattr(state, "error_dict")]

    def _read_numpy(self) -> tuple[Any, ...]:
        """Read numpy's global generator, which takes 45 us, only if it may have changed."""
        generator = sys.modules["numpy"].random
        source = generator.mtrand._rand._bit_generator  # noqa: SLF001 - no public name is as cheap
        if type(source).__name__ != "MT19937":
            return _plain_state(generator)
        memory = ctypes.string_at(source.ctypes.state_address, _MT19937_BYTES)
        if memory != self._numpy[0] or self._numpy[1][3]:  # a second normal number, whose use changes nothing else
            self._numpy = memory, _plain_state(generator)
        return self._numpy[1]

    def restore(self, shared: State, states: State) -> int:
        """Restore the content of state.pt and the `states` of the parts that are not in it; return the step."""
        restore(self.parts, {**states, **shared["parts"]})
        for name, layout in self.layouts.items():
            layout.restore(shared["layouts"].get(name, []))
        return int(shared["step"])

    def restore_own(self, own: State) -> None:
        """Restore the state that only this rank has; its random numbers wait for `restore_random`."""
        for name, module in self.modules.items():
            buffers = own["buffers"].get(name, {})
            for path, buffer in unwrap(module).named_buffers():
                if path in buffers:
                    buffer.copy_(buffers[path])
            for hook, saved in zip(self._hooks(name), own["hooks"].get(name, [])):
                _restore_hook(hook, saved, self._device)
        restore(self._own, own["own"])
        self._random = own["random"]

    def restore_random(self) -> None:
        """Restore the generators of torch, the GPU, Python, and numpy if it is loaded, once before the first step."""
        state, self._random = self._random, None
        if state is None:
            return
        torch.set_rng_state(state["torch"])
        if self._device.type == "cuda" and "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)
        random.setstate(state["python"])
        if "numpy" in state and "numpy" in sys.modules:
            sys.modules["numpy"].random.set_state(_numpy_state(state["numpy"]))


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module inside the wrappers of data parallelism and torch.compile."""
    while True:
        if isinstance(module, (DistributedDataParallel, nn.DataParallel)):
            module = module.module
        elif hasattr(module, "_orig_mod"):
            module = module._orig_mod  # type: ignore[assignment]  # noqa: SLF001 - torch.compile's only name for it
        else:
            return module


def state_of(part: Stateful) -> State:
    """Return a part's state; of a ZeroRedundancyOptimizer only this rank's, numbered as in the whole optimizer."""
    if not is_zero(part):
        return (unwrap(part) if isinstance(part, nn.Module) else part).state_dict()
    zero: Any = part
    if not hasattr(zero, "optim"):
        raise RankError("a ZeroRedundancyOptimizer with overlap_with_ddp=True cannot be saved; leave that option out")
    numbers = {id(parameter): number for number, parameter in enumerate(parameters_of(zero))}
    state = {numbers[id(parameter)]: dict(values) for parameter, values in zero.optim.state.items()}
    return {"state": state, "param_groups": torch.optim.Optimizer.state_dict(zero)["param_groups"]}


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters in the order of their numbers in the optimizer's state."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def full_state_dict(model: nn.Module) -> State:
    """Return the model's whole state on rank 0, as plain tensors in host memory; an empty dict on the other ranks.

    It fits the plain model, which is not wrapped, compiled or sharded. All ranks call this together.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    whole: State = {}
    for name, value in unwrap(model).state_dict().items():
        gathered = value.to(value.device_mesh.device_type).full_tensor() if _is_dtensor(value) else value
        if main:
            whole[name] = gathered.detach().cpu() if isinstance(gathered, Tensor) else gathered
    return whole


def _states_of(parts: Mapping[str, Stateful]) -> State:
    return {name: state_of(part) for name, part in parts.items()}


def is_zero(part: Any) -> bool:
    """Tell whether a part is a ZeroRedundancyOptimizer."""
    return _is(part, "torch.distributed.optim.zero_redundancy_optimizer", "ZeroRedundancyOptimizer")


def is_divided(part: Stateful) -> bool:
    """Tell whether each rank holds only pieces of a part's state.

    Raises RankError for a FullyShardedDataParallel, whose state would be gathered on every rank.
    """
    inner = part.modules() if isinstance(part, nn.Module) else ()
    if any(_is(module, "torch.distributed.fsdp", "FullyShardedDataParallel") for module in inner):
        raise RankError("a FullyShardedDataParallel cannot be saved; use torch.distributed.fsdp.fully_shard instead")
    tensors = parameters_of(part) if isinstance(part, torch.optim.Optimizer) else leaves(state_of(part))
    return is_zero(part) or any(map(_is_dtensor, tensors))


def _is_dtensor(value: Any) -> bool:
    return _is(value, "torch.distributed.tensor", "DTensor")


def _is(value: Any, module: str, name: str) -> bool:
    """Tell whether a value is an instance of a class, without importing the class's module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def leaves(value: Any) -> Iterator[Any]:
    """Yield what dicts, lists and tuples hold, at any depth."""
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def restore(parts: Mapping[str, Stateful], state: State) -> None:
    """Restore each part; raise RankError when `state` has no entry for a part, or the entry does not fit."""
    for name, part in parts.items():
        if name not in state:
            raise RankError(f"the checkpoint holds no {name}; it has {', '.join(state)}; --reset starts over")
        try:
            (unwrap(part) if isinstance(part, nn.Module) else part).load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            what = " ".join(str(error).split())
            raise RankError(f"the checkpoint does not fit this {name}: {what}; --reset starts over") from error
        if is_zero(part):
            part.state.clear()  # type: ignore[attr-defined]  # a second copy, which no step reads
        elif isinstance(part, torch.optim.Optimizer):
            _keep_precision(part, state[name])


def _keep_precision(optimizer: torch.optim.Optimizer, saved: State) -> None:
    """Restore the saved precision where torch has rounded to that of the parameters: fp32 masters of bf16 weights."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    for number, parameter in zip(numbers, parameters_of(optimizer)):
        for key, value in saved["state"].get(number, {}).items():
            loaded = optimizer.state[parameter].get(key)
            if isinstance(value, Tensor) and isinstance(loaded, Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][key] = value.to(loaded.device)


def _plain_state(generator: Any) -> tuple[Any, ...]:
    """Return the state of one of numpy's generators with a tensor in place of the array."""
    kind, keys, *rest = generator.get_state()
    return (kind, torch.from_numpy(keys.astype("int64")), *rest)


def _numpy_state(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what `_plain_state` was given."""
    kind, keys, *rest = state
    return (kind, keys.numpy().astype("uint32"), *rest)


def _restore_hook(hook: Any, state: State, device: torch.device) -> None:
    hook.rng.set_state(_numpy_state(state["rng"]))
    for name, value in state.items():
        if isinstance(value, dict):
            setattr(hook, name, {index: item.to(device) for index, item in value.items()})
        elif name != "rng":
            setattr(hook, name, value)
