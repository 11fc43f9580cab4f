"""The names of other libraries that a rank replaces, as data, and what follows an import by the user's program.

Modules that replace a name call `replace`; those that wait for an import call `after_import`. A patch is applied in any
version that has its names: each wraps the original and passes calls on. Where a name is missing, all of the patch is
left out. tests/runtime/test_patches.py checks that the installed versions have every name. Standard library only.
"""

import functools
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple

from slurmddp.runtime.launch.process import print_line


class Patch(NamedTuple):
    """Names of one library that are replaced together, for one reason."""

    names: tuple[str, ...]
    """Each is `module:name`."""
    why: str
    without: str = ""
    """What a rank says where a name is missing; empty: nothing, the program runs as well, or slower."""


FORKED_PROCESS: Final = Patch(
    ("multiprocessing.popen_fork:Popen._launch",),
    "a forked process of multiprocessing starts with SIGTERM blocked, until it is protected",
)
SPAWNED_PROCESS: Final = Patch(
    ("multiprocessing.util:spawnv_passfds",),
    "a spawned process of multiprocessing, and the fork server, start with the stop signals blocked",
)
STARTED_PROGRAM: Final = Patch(
    ("subprocess:Popen.__init__",),
    "programs start without the mask of a protected process, and the services of trackers deaf to SIGTERM",
)
GROUP_DESTRUCTORS: Final = Patch(
    ("torch.distributed:destroy_process_group", "torch.distributed.distributed_c10d:destroy_process_group"),
    "the destructor of a gloo group can wait forever for the interpreter lock",
)
PROGRAM_STORE: Final = Patch(
    ("torch.distributed.rendezvous:TCPStore",),
    "a client that is refused waits long before it tries again, so no rank connects before rank 0 listens",
)
TRAINER: Final = Patch(
    ("transformers.trainer:Trainer.train",),
    "a training saves and stops at a stop request, and resumes, without a change of the script",
    "WARNING: this transformers has no Trainer.train: nothing is saved when the job must stop",
)
TRAINER_HANDLER: Final = Patch(
    ("transformers.trainer_jit_checkpoint:CheckpointManager.setup_signal_handler",),
    "enable_jit_checkpoint installs its handler only where the program has replaced ours before",
)
SAVE: Final = Patch(
    ("torch:save", "torch.serialization:save"),
    "a program that saves makes progress, so that its job may be requeued at each time limit",
)
SAVE_FILE: Final = Patch(("safetensors.torch:save_file",), SAVE.why)
PATCHES: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Patch))


def replace(patch: Patch, wrap: Callable[[Any], Any]) -> None:
    """Replace each name of a patch by what `wrap` makes of it; leave the patch out where one of them is missing."""
    try:
        originals = [*map(pkgutil.resolve_name, patch.names)]
    except (ImportError, AttributeError):
        if patch.without:
            print_line(patch.without, sys.stderr)
        return
    for name, original in zip(patch.names, originals):
        holder, last = re.split(r"[:.](?=\w+$)", name)
        setattr(pkgutil.resolve_name(holder), last, functools.wraps(original, updated=())(wrap(original)))


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with the module `name` as soon as it is imported; at once if it is."""
    if name in sys.modules:
        action(sys.modules[name])
        return

    def find_spec(wanted: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None) -> Any:
        """Find this module as Python does, with a loader that calls the action, and no other."""
        spec = PathFinder.find_spec(name, path, target) if wanted == name else None
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                action(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec

    sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))
