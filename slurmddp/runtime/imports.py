"""Lets an action follow the import of a module by the user's program. Standard library only."""

from __future__ import annotations
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Action = Callable[[ModuleType], None]


def after_import(name: str, action: Action) -> None:
    """Call `action` with the module `name` as soon as it is imported; at once if it is."""
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, action))


class _Finder:
    """Among the finders of `sys.meta_path`, finds the module as Python does, and lets the action follow its import."""

    def __init__(self, name: str, action: Action) -> None:
        self._name, self._action = name, action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec, with a loader that calls the action; None for every other module."""
        spec = PathFinder.find_spec(name, path, target) if name == self._name else None
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._action(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
