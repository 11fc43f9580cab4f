"""The lines of events.jsonl, and what a rank leaves at its end."""

import json
import math
from dataclasses import replace

import pytest

from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.runs.training_events import Metrics, Start
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.exiting.record import write_end, write_error, write_event
from slurmddp.runtime.launch.rank import Rank


@pytest.fixture
def rank(tmp_path) -> Rank:
    (tmp_path / "logs" / "17" / "0.0").mkdir(parents=True)
    return Rank(
        rank=0,
        local_rank=0,
        world_size=2,
        local_world_size=2,
        node_rank=0,
        host="n1",
        launcher="srun",
        run_dir=RunDir(tmp_path),
        job="17",
        attempt="0.0",
        master_addr="n1",
        master_port=1,
        store_port=2,
    )


def test_every_record_says_when_who_and_where(rank):
    write_event(rank, Start(world_size=2, local_world_size=2, nodes=1, launcher="srun", ranks={"n1": "0-1"}))
    (record,) = read_records(rank.run_dir.events)
    assert record.pop("time") > 1.7e9
    assert record == {
        "event": "start",
        "job": "17",
        "attempt": "0.0",
        "rank": 0,
        "host": "n1",
        "world_size": 2,
        "local_world_size": 2,
        "nodes": 1,
        "launcher": "srun",
        "ranks": {"n1": "0-1"},
    }


def test_numbers_json_has_no_word_for_become_texts(rank):
    write_event(
        rank, Metrics(step=1, total=2, values={"loss": math.nan, "speed": math.inf, "accuracy": None, "lr": 0.1})
    )
    (record,) = read_records(rank.run_dir.events)
    assert record["values"] == {"loss": "nan", "speed": "inf", "accuracy": None, "lr": 0.1}


def test_only_rank_zero_of_a_run_writes_events(rank):
    event = Start(world_size=2, local_world_size=2, nodes=1, launcher="srun", ranks={"n1": "0-1"})
    write_event(replace(rank, rank=1, local_rank=1), event)
    write_event(replace(rank, run_dir=None), event)
    assert not rank.run_dir.events.exists()


def test_a_record_is_status_who_and_reason(rank):
    second = replace(rank, rank=1, local_rank=1)
    write_end(second, Verdict(77, "ValueError: é\ud800"))
    assert (
        rank.run_dir.rank_record("17", "0.0", 1).read_bytes() == f"77 rank 1 on {rank.host}: ValueError: é?\n".encode()
    )
    write_end(rank, Verdict(0, "done"))
    (record,) = read_records(rank.run_dir.events)
    assert (record["event"], record["status"], record["reason"]) == ("end", 0, "done")


def test_the_error_file_has_torchs_form(rank):
    write_error(rank, ValueError("boom"))
    content = json.loads(rank.run_dir.rank_error("17", "0.0", 0).read_text())
    assert content["message"]["message"] == "ValueError: boom"
    assert content["message"]["extraInfo"]["py_callstack"] == "ValueError: boom\n"
    assert int(content["message"]["extraInfo"]["timestamp"]) > 1.7e9


def test_a_process_by_hand_leaves_nothing(rank, tmp_path):
    alone = replace(rank, run_dir=None)
    write_end(alone, Verdict(77, "x"))
    write_error(alone, ValueError())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
