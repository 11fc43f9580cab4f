"""The GPUs that a rank finds, by a stand-in for NVIDIA's library, which is compiled here: no GPU is needed."""

import os
import subprocess
import sys
from pathlib import Path

STAND_IN = Path(__file__).parents[1] / "programs" / "nvml.c"
PROGRAM = "from slurmddp.runtime.health.facts import list_uuids\nprint(*list_uuids())"


def listed(folder):
    environ = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_gpus_are_listed_by_their_uuids(tmp_path):
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(STAND_IN)], check=True)
    assert listed(tmp_path) == ["GPU-aaaa", "GPU-bbbb"]


def test_without_a_driver_there_are_none(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    assert listed(tmp_path) == []
