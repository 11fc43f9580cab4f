"""Which device a rank trains on, and that a program may destroy its groups."""

import subprocess
import sys

import pytest
import torch
from ranks import make_rank

from slurmddp.errors import RankError
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous import process_group


def rank(number: int = 0, local_world_size: int = 2) -> Rank:
    return make_rank(number, local_world_size)


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that makes torch see so many GPUs."""

    def see(count: int) -> list[torch.device]:
        current: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        return current

    return see


@pytest.fixture
def driver(monkeypatch):
    """Return a function that puts a driver's sign on the machine, or takes it away."""
    return lambda sign: monkeypatch.setattr(process_group, "_driver_sign", lambda: sign)


def test_cuda_is_taken_by_local_rank_and_made_current(gpus):
    current = gpus(2)
    assert process_group.choose_device("auto", rank(1), {"SLURM_GPUS_ON_NODE": "2"}) == torch.device("cuda", 1)
    assert current == [torch.device("cuda", 1)]


def test_no_driver_means_the_cpu_and_one_loud_line(gpus, driver, capsys):
    gpus(0)
    driver(None)
    for number in (0, 1):
        assert process_group.choose_device("auto", rank(number), {"CUDA_VISIBLE_DEVICES": "0,1"}).type == "cpu"
    assert capsys.readouterr().out == "WARNING: no GPU for this job: training on the CPU\n"


def test_gpus_hidden_on_purpose_mean_the_cpu(gpus, driver):
    gpus(0)
    driver("/proc/driver/nvidia")
    assert process_group.choose_device("auto", rank(), {"CUDA_VISIBLE_DEVICES": ""}).type == "cpu"


def test_the_cpu_on_request_needs_nothing(gpus):
    gpus(2)
    assert process_group.choose_device("cpu", rank(), {}).type == "cpu"


def test_a_broken_driver_is_never_a_silent_cpu_run(gpus, driver, monkeypatch):
    gpus(0)
    driver("/dev/nvidiactl")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(RankError, match=r"/dev/nvidiactl.*built without CUDA; or ask for --device cpu"):
        process_group.choose_device("auto", rank(), {})
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def fail() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\nmore")

    monkeypatch.setattr(torch.cuda, "init", fail)
    with pytest.raises(RankError, match=r"driver is there \(/dev/nvidiactl\), but The NVIDIA driver .* too old; or"):
        process_group.choose_device("auto", rank(), {})
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    with pytest.raises(RankError, match="it shows no GPU; ask for one by --gpus-per-node"):
        process_group.choose_device("auto", rank(), {})


@pytest.mark.parametrize(
    ("seen", "device", "given", "message"),
    [
        (0, "cuda", {}, "no CUDA on n1: there is no NVIDIA driver; or ask for --device cpu"),
        (8, "auto", {"SLURM_GPUS_ON_NODE": "2"}, "8 GPUs are visible on n1, but Slurm gave this job SLURM_GPUS_ON_NOD"),
        (1, "auto", {}, "2 ranks on n1 see 1 GPU; ask for --gpus-per-node 2"),
    ],
)
def test_other_gpus_than_the_ranks_need_are_refused(gpus, driver, seen, device, given, message):
    gpus(seen)
    driver(None)
    with pytest.raises(RankError, match=message):
        process_group.choose_device(device, rank(), given)


def test_signs_of_a_driver_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(process_group, "DRIVER_SIGNS", (tmp_path,))
    assert process_group._driver_sign() == str(tmp_path)
    monkeypatch.setattr(process_group, "DRIVER_SIGNS", (tmp_path / "none",))
    assert process_group._driver_sign() in (None, "libcuda.so.1")


BODY = """
import os
import torch, torch.distributed as dist
from slurmddp.runtime.rendezvous.process_group import skip_group_destructors
def threads():
    return len(os.listdir("/proc/self/task"))
if {keeps}:
    skip_group_destructors()
from torch.distributed import destroy_process_group
for _ in range(2):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.new_group()
    dist.all_reduce(torch.ones(1))
    before = threads()
    destroy_process_group()
    print(dist.is_initialized(), threads() >= before)
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_destroyed_groups_are_forgotten_and_keep_their_threads(keeps):
    """Without it the destructor joins them. If a later torch does not, the function is no longer needed."""
    done = subprocess.run(
        [sys.executable, "-c", BODY.format(keeps=keeps)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.returncode) == (f"False {keeps}\n" * 2, 0), done.stderr
