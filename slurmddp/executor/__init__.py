"""submitit's interface to the jobs of `slurmddp submit`. Only this package imports submitit, and only on first use.

A program changes one line: `import slurmddp.executor as submitit`. `AutoExecutor` and `SlurmExecutor` are then
`Executor`, and every other name is submitit's own.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmddp.executor.executor import Executor as Executor
    from slurmddp.executor.job import Job as Job

_PLACES = {
    "Executor": ("slurmddp.executor.executor", "Executor"),
    "AutoExecutor": ("slurmddp.executor.executor", "Executor"),
    "SlurmExecutor": ("slurmddp.executor.executor", "Executor"),
    "SlurmJob": ("slurmddp.executor.job", "Job"),
}


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module 'slurmddp.executor' has no attribute {name!r}")
    module, attribute = _PLACES.get(name, ("submitit", name))
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise AttributeError(f"neither slurmddp.executor nor submitit has an attribute {name!r}") from error
