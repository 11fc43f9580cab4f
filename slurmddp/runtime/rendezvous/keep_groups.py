"""Lets a program destroy its process groups without taking them apart. Changes one function of torch.

The destructor of a gloo group joins its threads while it holds the interpreter, and one of them may be waiting for the
interpreter (torch 2.13): a rank that had finished hung for good in `destroy_process_group`, as torch's own examples
call it. A rank ends by `os._exit`, so that nothing has to be taken apart.
"""

import functools
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

_kept: list[Any] = []


def keep_destroyed() -> None:
    """Let `destroy_process_group` shut groups down and forget them, as ever, and let none of their destructors run."""
    destroy = dist.destroy_process_group

    @functools.wraps(destroy)
    def forget(group: dist.ProcessGroup | None = None) -> None:
        _kept.extend(distributed_c10d._world.pg_map)  # noqa: SLF001 - torch has no public list of the groups
        destroy(group)

    for module in (dist, distributed_c10d):
        vars(module)["destroy_process_group"] = forget
