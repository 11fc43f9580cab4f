"""What GPUs do, by a stand-in for NVIDIA's library, which is compiled here: no GPU is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parents[1] / "programs" / "nvml.c"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    command = ["cc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(STAND_IN)]
    subprocess.run(command, check=True)
    return folder


def run(program, folder):
    environ = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_gpu_is_measured(driver):
    program = "from slurmddp.watchdog.gpu import Gpu\nfor uuid in ('GPU-aaaa', 'GPU-bbbb'): print(*Gpu(uuid).measure())"
    used, total = 60 << 30, 80 << 30
    assert run(program, driver).splitlines() == [f"0.93 {used} {total} 412.5", f"0.0 {used} {total} 70.0"]


def test_the_gpus_are_listed_and_another_one_is_an_error(driver):
    assert (
        run("from slurmddp.watchdog.gpu import list_uuids\nprint(list_uuids())", driver) == "['GPU-aaaa', 'GPU-bbbb']"
    )
    program = "from slurmddp.watchdog.gpu import Gpu\ntry: Gpu('GPU-cccc')\nexcept OSError as error: print(error)"
    assert run(program, driver) == "NVML has no GPU GPU-cccc"


def test_without_a_driver_there_are_no_gpus(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    assert run("from slurmddp.watchdog.gpu import list_uuids\nprint(list_uuids())", tmp_path) == "[]"


OWN = """
import sys, types
from slurmddp.watchdog.gpu import find_own_gpu
named = lambda number: types.SimpleNamespace(uuid=("aaaa", "bbbb", "cccc")[number])
sys.modules["torch.cuda"] = types.SimpleNamespace(
    device_count=lambda: 3, memory_reserved=lambda number: {NUMBER: 5}.get(number, 0), get_device_properties=named
)
own = find_own_gpu()
print(own and [own.measure(), own.measure()][-1])
"""


@pytest.mark.parametrize(("number", "found"), [(0, "GpuUse(busy=0.93"), (1, "GpuUse(busy=0.0"), (2, "None")])
def test_a_rank_reports_the_gpu_on_which_it_has_memory(driver, number, found):
    assert run(OWN.replace("NUMBER", str(number)), driver).startswith(found)
