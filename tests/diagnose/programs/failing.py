"""Fails as told, on rank 1, without torch: `python failing.py value|kill|wait`; the other ranks wait for it."""

import atexit
import os
import signal
import sys
import time
import traceback

atexit.register(time.sleep, 1)  # srun drops what a rank printed last when it ends the others at once

if os.environ.get("RANK", os.environ.get("SLURM_PROCID")) == "1":
    if sys.argv[1] == "value":
        raise ValueError("the data of rank 1 is wrong")
    if sys.argv[1] == "kill":
        try:
            int("a sample that is unreadable")
        except ValueError:
            traceback.print_exc()  # caught: not what ends it
        os.kill(os.getpid(), signal.SIGKILL)
sys.stdout.write("waiting\n")
sys.stdout.flush()
time.sleep(60)
