"""submitit's interface to the engine of `slurmddp submit`; the only door to submitit, which loads on first use.

`import slurmddp.executor as submitit` is the one line that a program changes: `AutoExecutor` and `SlurmExecutor` are
`Executor` here, and every other name is submitit's own.
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
