"""torch's flight recorder: its dumps lie in the run's folder when ranks fail."""

import os
import pickle
from pathlib import Path

import pytest
from ranks import make_rank

from slurmddp.runs.layout import RunDir
from slurmddp.runtime.exiting import flight_recorder

MISMATCH = """
import datetime, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
total = torch.ones(1)
for _ in range(3):
    dist.all_reduce(total)
if dist.get_rank() == 1:
    raise ValueError("rank 1 goes its own way")
dist.all_reduce(torch.ones(7))
"""
TIMEOUT = """
import datetime, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
dist.all_reduce(torch.ones(3))
if dist.get_rank() == 1:
    time.sleep(6)
dist.all_reduce(torch.ones(5))
"""


def entries(ended, rank: int) -> list[dict]:
    """The collectives in that rank's dump; it was written by this test's own processes."""
    path = Path(f"{ended.run.flight_prefix('17', ended.attempt)}{rank}")
    return pickle.loads(path.read_bytes())["entries"]  # noqa: S301 - as said


@pytest.mark.preloaded
def test_ranks_that_part_leave_what_each_was_doing(start, tmp_path):
    (tmp_path / "part.py").write_text(MISMATCH)
    ended = start("srun", 2, str(tmp_path / "part.py")).wait()
    assert ended.statuses == [76, 77]
    first, second = entries(ended, 0), entries(ended, 1)
    assert [len(entry["input_sizes"]) for entry in second] == [1, 1, 1]
    assert first[-1]["input_sizes"] == [[7]]
    assert len(first) == len(second) + 1
    assert "deprecated" not in ended.log(0) + ended.log(1)


@pytest.mark.preloaded
def test_a_collective_that_times_out_is_in_the_dump_and_a_good_end_leaves_none(start, tmp_path):
    (tmp_path / "good.py").write_text(MISMATCH.partition("if dist")[0])
    good = start("fork", 2, str(tmp_path / "good.py")).wait()
    assert good.statuses == [0] and not list(good.run.path.rglob("flight.*"))
    (tmp_path / "late.py").write_text(TIMEOUT)
    ended = start("fork", 2, str(tmp_path / "late.py")).wait()
    assert set(ended.statuses) <= {76}
    assert entries(ended, 0)[-1]["input_sizes"] == [[5]]


@pytest.fixture
def rank(tmp_path):
    return make_rank(0, 2, run_dir=RunDir(tmp_path), job="17", attempt="0.0")


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2.4.1", ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")),
        ("2.8.0+cu128", ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")),
        ("2.13.0+cpu", ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")),
    ],
)
def test_old_names_are_for_old_versions(rank, version, names):
    environment = {}
    flight_recorder.enable(rank, environment, version)
    assert set(environment) == {*names, "TORCH_NCCL_DUMP_ON_TIMEOUT"}
    assert environment[names[1]] + "0" == os.fspath(rank.run_dir.attempt("17", "0.0") / "flight.0")


@pytest.mark.parametrize("version", ["2.4.1", "2.13.0"])
def test_what_the_user_has_set_stays(rank, version):
    own = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine", "TORCH_FR_BUFFER_SIZE": "7", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    environment = dict(own)
    flight_recorder.enable(rank, environment, version)
    assert environment == own
