"""Loads and checks a task of the user: `--task package.module:Class`."""

import importlib
from pathlib import Path
from types import ModuleType

from torch import Tensor

from slurmddp.errors import UsageError
from slurmddp.worker import snapshot_paths
from slurmddp.worker.run_script import prepend_to_path
from slurmddp.worker.task import Examples, Task

PAIR = 2
NEEDED = ("model", "losses")
"""Methods that the user's class must define."""


def load_class(name: str) -> type[Task]:
    """Return the class; its module is searched as by `python -m`, first in the working directory.

    Raises UsageError when the module or the class does not exist, or the class is not a complete Task.
    """
    module_name, _, class_name = name.partition(":")
    prepend_to_path(snapshot_paths.require_in_snapshot(str(Path.cwd())))
    module = _import(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise UsageError(f"--task {name}: {module_name} has no {class_name}; {_list_tasks(module)}")
    if not isinstance(found, type) or not issubclass(found, Task):
        raise UsageError(f"--task {name}: {class_name} is no task; write class {class_name}(slurmddp.worker.task.Task)")
    for method in NEEDED:
        if getattr(found, method) is getattr(Task, method):
            raise UsageError(f"--task {name}: {class_name} has no method {method}; docs/tasks.md shows a whole task")
    return found


def check_data(task: Task, name: str) -> None:
    """Raise UsageError for a task whose samples are missing or are not pairs."""
    if not hasattr(task, "train"):
        raise UsageError(f"--task {name}: __init__ sets no self.train, the samples to train on")
    _check_examples(f"--task {name}: self.train", task.train)
    if task.test is not None:
        _check_examples(f"--task {name}: self.test", task.test)


def _check_examples(what: str, examples: Examples) -> None:
    if not hasattr(examples, "__len__") or not hasattr(examples, "__getitem__"):
        raise UsageError(f"{what} has no length or no samples by number; give a map-style dataset")
    if len(examples) == 0:
        raise UsageError(f"{what} is empty")
    sample = examples[0]
    if not isinstance(sample, tuple | list) or len(sample) != PAIR or not isinstance(sample[0], Tensor):
        raise UsageError(f"{what}[0] is no pair of an input and its target, of which the input is a tensor")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"--task: there is no module {error.name} in {Path.cwd()} nor among those installed; "
            "type the name as python -m would take it"
        ) from error


def _list_tasks(module: ModuleType) -> str:
    members = [member for member in vars(module).values() if isinstance(member, type) and issubclass(member, Task)]
    own = [member.__name__ for member in members if member.__module__ == module.__name__]
    return f"its tasks are {', '.join(own)}" if own else "write class NAME(slurmddp.worker.task.Task) there"
