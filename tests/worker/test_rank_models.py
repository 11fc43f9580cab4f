"""Each rank's model, as `--save-all-ranks` leaves it and `slurmddp compare` reads it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TASK = """
import torch
from torch import nn
from slurmddp.worker.task import InMemory, Task

class Normed(Task):
    def __init__(self, options):
        super().__init__(options)
        inputs = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        self.train = InMemory(inputs, inputs.sum(dim=1, keepdim=True))

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def losses(self, outputs, targets):
        return (outputs - targets).square().mean(dim=1)
"""
BUFFERS = {"1.running_mean", "1.running_var"}


@pytest.mark.preloaded
def test_ranks_have_the_same_parameters_and_batch_statistics_of_their_own(start, tmp_path: Path):
    (tmp_path / "normed.py").write_text(TASK)
    ended = start("fork", 2, "--task=normed:Normed", "--epochs=1", "--save-all-ranks", cwd=tmp_path).wait()
    assert ended.statuses == [0], ended.log(0)
    compared = subprocess.run(
        [sys.executable, "-m", "slurmddp", "compare", "--json", ended.run.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compared.returncode == 1, compared.stderr
    found = json.loads(compared.stdout)
    assert found["compared"] == {"parameter": 6, "buffer": 3}
    assert {item["name"]: item["kind"] for item in found["differences"]} == dict.fromkeys(BUFFERS, "buffer")
