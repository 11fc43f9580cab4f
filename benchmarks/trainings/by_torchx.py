"""Submit a program by torchx's dist.ddp; print the job's id: by_torchx.py NODES RANKS PARTITION PROGRAM WORDS...

This is what `torchx run` does, without its question for the job's state: it asks sacct, and ends with a traceback on a
Slurm without accounting.
"""

import os
import sys
from pathlib import Path

from torchx.runner import get_runner

nodes, ranks, partition, program, *words = sys.argv[1:]
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in a shell with the environment active
size = ["-j", f"{nodes}x{ranks}", "--cpu", ranks, "--memMB", "1000"]
with get_runner() as runner:
    words = [*size, "--script", program, "--", *words]
    job = runner.run_component("dist.ddp", words, "slurm", {"partition": partition})
print(job.rpartition("/")[2])
