"""submitit's interface to the jobs of `slurmddp submit`. Only this package imports submitit.

A program changes one line: `import slurmddp.executor as submitit`. For a library that imports submitit by itself, the
program begins with `sys.modules["submitit"] = slurmddp.executor`. `AutoExecutor` and `SlurmExecutor` are then
`Executor`, and every other name, and every module, is submitit's own.
"""

import importlib
from typing import TYPE_CHECKING, Any

import submitit as _submitit

if TYPE_CHECKING:
    from slurmddp.executor.executor import Executor as Executor
    from slurmddp.executor.job import Job as Job

__path__ += _submitit.__path__  # where `import submitit.helpers` looks when this package stands for submitit

_PLACES = {**dict.fromkeys(("Executor", "AutoExecutor", "SlurmExecutor"), "executor.Executor"), "SlurmJob": "job.Job"}
"""Names of submitit, each with the module here and the class."""


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module 'slurmddp.executor' has no attribute {name!r}")
    if name in _PLACES:
        module, _, attribute = _PLACES[name].partition(".")
        return getattr(importlib.import_module(f"slurmddp.executor.{module}"), attribute)
    try:
        return getattr(_submitit, name)
    except AttributeError as error:
        raise AttributeError(f"neither slurmddp.executor nor submitit has an attribute {name!r}") from error
