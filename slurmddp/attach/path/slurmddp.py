"""Becomes the package `slurmddp` that this folder is in, for a Python in whose environment it is not installed.

Nothing else of the environment that slurmddp is installed in can be imported by it.
"""

import importlib.util
import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_spec = importlib.util.spec_from_file_location(
    "slurmddp", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
)
if _spec is None or _spec.loader is None:
    raise ImportError(_PACKAGE)
sys.modules["slurmddp"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["slurmddp"])
