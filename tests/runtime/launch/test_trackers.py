"""A tracker's run goes on over the attempts of a run, on rank 0, unless the user says otherwise."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slurmddp.runs.layout import RunDir
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.launch.trackers import export_ids, record_mlflow_run


@pytest.fixture
def rank(tmp_path):
    return replace(read_rank({}), run_dir=RunDir(tmp_path))


def exported(rank, **given: str) -> dict[str, str]:
    environment = dict(given)
    export_ids(rank, environment)
    return environment


def test_all_attempts_of_a_run_have_one_id_and_each_run_its_own(rank, tmp_path):
    first = exported(rank)
    assert first == exported(rank) == {"WANDB_RUN_ID": rank.run_dir.tracker_id.read_text(), "WANDB_RESUME": "allow"}
    (tmp_path / "other").mkdir()
    assert exported(replace(rank, run_dir=RunDir(tmp_path / "other")))["WANDB_RUN_ID"] != first["WANDB_RUN_ID"]


@pytest.mark.parametrize(
    "given", [{"WANDB_RUN_ID": "mine"}, {"WANDB_RESUME": "never"}, {"SLURMDDP_SKIP_TRACKER_IDS": "1"}]
)
def test_what_the_user_sets_stays(rank, given):
    assert exported(rank, **given) == given


def test_other_ranks_and_processes_without_a_run_get_none(rank):
    assert exported(replace(rank, rank=1, world_size=2)) == exported(replace(rank, run_dir=None)) == {}


def test_a_folder_that_cannot_be_written_to_ends_no_training(rank, tmp_path):
    assert exported(replace(rank, run_dir=RunDir(tmp_path / "missing"))) == {}


def test_the_first_run_in_mlflow_goes_on_in_the_next_attempt(rank, monkeypatch):
    for number in ("1", "2"):
        active = SimpleNamespace(info=SimpleNamespace(run_id=f"run-{number}"))
        monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=lambda active=active: active))
        record_mlflow_run(rank)
    assert exported(rank)["MLFLOW_RUN_ID"] == "run-1"
    assert exported(rank, MLFLOW_RUN_ID="mine")["MLFLOW_RUN_ID"] == "mine"


@pytest.mark.parametrize("mlflow", [None, SimpleNamespace(), SimpleNamespace(active_run=lambda: None)])
def test_without_a_run_in_mlflow_nothing_is_recorded(rank, monkeypatch, mlflow):
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    record_mlflow_run(rank)
    assert "MLFLOW_RUN_ID" not in exported(rank)
