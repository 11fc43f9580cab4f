"""Runs a module of slurmddp, as `python bootstrap.py slurmddp.worker train.py`, where slurmddp need not be installed.

The package is loaded from where this file is, and nothing else of the environment that it is installed in.
"""

import importlib.util
import os
import runpy
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load_package() -> None:
    """Make the package `slurmddp` of this folder the one that is imported."""
    spec = importlib.util.spec_from_file_location(
        "slurmddp", os.path.join(PACKAGE, "__init__.py"), submodule_search_locations=[PACKAGE]
    )
    if spec is None or spec.loader is None:
        raise ImportError(PACKAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["slurmddp"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    load_package()
    runpy.run_module(sys.argv.pop(1), run_name="__main__")
