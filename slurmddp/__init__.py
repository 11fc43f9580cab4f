"""From a training script to a multi-node PyTorch DDP job on Slurm.

The names for training scripts load torch when they are first used, `Executor` loads submitit.
"""

from typing import TYPE_CHECKING, Any

from slurmddp.version import __version__ as __version__

if TYPE_CHECKING:
    from slurmddp.executor.executor import Executor as Executor
    from slurmddp.runtime.checkpoint.checkpointer import Checkpointer as Checkpointer
    from slurmddp.runtime.checkpoint.sampler import Sampler as Sampler
    from slurmddp.runtime.checkpoint.training_state import full_state_dict as full_state_dict
    from slurmddp.runtime.session import init as init

__all__ = ["Checkpointer", "Executor", "Sampler", "full_state_dict", "init"]

_PLACES = {
    "Checkpointer": "runtime.checkpoint.checkpointer",
    "Executor": "executor.executor",
    "Sampler": "runtime.checkpoint.sampler",
    "full_state_dict": "runtime.checkpoint.training_state",
    "init": "runtime.session",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'slurmddp' has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - a bare `import slurmddp` stays light

    return getattr(importlib.import_module(f"slurmddp.{_PLACES[name]}"), name)
