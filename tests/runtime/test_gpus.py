"""The GPUs of a node, and what a rank's own does, by a stand-in for NVIDIA's library, which is compiled here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parents[1] / "programs" / "nvml.c"
PROGRAM = "from slurmddp.watchdog.gpu import list_uuids\nprint(*list_uuids())"
OWN = """
import sys, types
from slurmddp.watchdog.gpu import OwnGpu
named = lambda number: types.SimpleNamespace(uuid=("aaaa", "bbbb", "cccc")[number])
sys.modules["torch.cuda"] = types.SimpleNamespace(
    device_count=lambda: 3, memory_reserved=lambda number: {NUMBER: 5}.get(number, 0), get_device_properties=named
)
try:
    own = OwnGpu()
    print(*[own.measure(), own.measure()][-1])
except OSError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(STAND_IN)], check=True)
    return folder


def run(program, folder):
    environ = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_gpus_are_listed_by_their_uuids(driver):
    assert run(PROGRAM, driver) == "GPU-aaaa GPU-bbbb"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, f"0.93 {60 << 30} {80 << 30} 412.5"),
        (1, f"0.0 {60 << 30} {80 << 30} 70.0"),
        (2, "NVML has no GPU cccc"),
    ],
)
def test_a_rank_measures_the_gpu_on_which_it_has_memory(driver, number, said):
    assert run(OWN.replace("NUMBER", str(number)), driver) == said


def test_without_a_driver_there_are_none(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    assert run(PROGRAM, tmp_path) == ""
