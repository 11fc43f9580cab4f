"""Runs a script as it is, but for the time of a step: slowed.py STEP_S SCRIPT [ARGUMENT...].

Each step of its optimizer takes STEP_S seconds longer, and another second while there is the file `slow`.
"""

import runpy
import sys
import time
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook


def main(step_s, script, *words):
    register_optimizer_step_post_hook(lambda *_: time.sleep(float(step_s) + Path("slow").exists()))
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
