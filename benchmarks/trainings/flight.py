"""Leaves a dump of torch's flight recorder, as a rank that fails does: flight.py cpu|cuda."""

import os
import sys

import torch
import torch.distributed as dist

import slurmddp
from slurmddp.runtime.exiting import flight_recorder
from slurmddp.runtime.launch.rank import read_rank

rank = read_rank(os.environ)
flight_recorder.enable(rank, os.environ)
with slurmddp.init(sys.argv[1]) as ddp:  # type: ignore[arg-type]  # one of its words
    for width in range(1, 4):
        dist.all_reduce(torch.ones(width, device=ddp.device))
    flight_recorder.dump(rank)
