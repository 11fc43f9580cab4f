"""What a rank says of its training by itself, beside its reports to the supervisor."""

import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp import variables

TRAINING = """
import sys
import torch
from ranks import make_rank
from slurmddp.runtime.heartbeat import start_heartbeat
rank, world_size, with_group = map(int, sys.argv[1:4])
start_heartbeat(make_rank(rank, world_size, secret="00ff"))
if with_group:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
WARNING = (
    "WARNING: 4 ranks train, each the whole by itself: the program has made no process group; `slurmddp "
    "init --example ddp` writes a script for several ranks\n"
)


@pytest.mark.parametrize(("words", "said"), [("0 4 0", WARNING), ("0 4 1", "")])
def test_ranks_that_train_apart_are_told_once(words, said):
    environ = {variables.BEATS: "127.0.0.1:9", "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    command = [sys.executable, "-c", TRAINING, *words.split()]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == said
