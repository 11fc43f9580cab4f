"""A program may destroy its groups; their threads are left alone."""

import subprocess
import sys

import pytest

BODY = """
import os
import torch, torch.distributed as dist
from slurmddp.runtime.rendezvous.keep_groups import keep_destroyed
def threads():
    return len(os.listdir("/proc/self/task"))
if {keeps}:
    keep_destroyed()
from torch.distributed import destroy_process_group
for _ in range(2):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.new_group()
    dist.all_reduce(torch.ones(1))
    before = threads()
    destroy_process_group()
    print(dist.is_initialized(), threads() >= before)
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_destroyed_groups_are_forgotten_and_keep_their_threads(keeps):
    """Without it the destructor joins them: should torch stop to, nothing is to be kept any more."""
    done = subprocess.run([sys.executable, "-c", BODY.format(keeps=keeps)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (f"False {keeps}\n" * 2, 0), done.stderr
