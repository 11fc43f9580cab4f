"""Runs a module of slurmddp, as `python bootstrap.py slurmddp.worker train.py`, in an environment without slurmddp.

The package is that of this file. The processes that multiprocessing spawns find it, too: they get the same sys.path.
"""

import importlib
import os
import runpy
import sys

if __name__ == "__main__":
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")
    sys.path.insert(0, folder)
    importlib.import_module("slurmddp")
    sys.path.remove(folder)
    sys.path.append(folder)
    runpy.run_module(sys.argv.pop(1), run_name="__main__")
