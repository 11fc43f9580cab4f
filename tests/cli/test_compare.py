"""Which files `slurmddp compare` means, and what it prints."""

import json

import pytest
import torch

from slurmddp import cli
from slurmddp.cli.compare import find_model_files
from slurmddp.errors import UsageError
from slurmddp.runs.files import append_record


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "jobs" / "exp"
    folder.mkdir(parents=True)
    for rank in (0, 2, 10):
        torch.save({"w": torch.zeros(2), "n.running_mean": torch.full((2,), float(rank))}, folder / f"rank-{rank}.pt")
    torch.save({"w": torch.zeros(2)}, folder / "model.pt")
    (folder / "events.jsonl").touch()
    return folder


@pytest.fixture
def compare(run, monkeypatch, capsys):
    """Return a function that runs the command here, where torch is loaded, and returns its status and output."""
    monkeypatch.chdir(run.parents[1])

    def typed(*words):
        return cli.run_command_line(["compare", *map(str, words)]), *capsys.readouterr()

    return typed


def test_a_run_alone_stands_for_its_ranks_in_their_order(run, tmp_path):
    found = find_model_files(["exp"], str(tmp_path / "jobs"))
    assert [path.name for path in found] == ["rank-0.pt", "rank-2.pt", "rank-10.pt"]
    assert find_model_files([str(run)], "nowhere") == found


def test_of_several_each_run_stands_for_its_model(run, tmp_path):
    other = run / "rank-0.pt"
    assert find_model_files(["exp", str(other)], str(tmp_path / "jobs")) == [run / "model.pt", other]


def test_what_cannot_be_compared_is_one_line_that_says_what_to_give(run, tmp_path):
    (tmp_path / "jobs" / "new").mkdir()
    append_record(tmp_path / "jobs/new/submissions.jsonl", {"job": "1"})
    (tmp_path / "jobs" / "sw").mkdir()
    append_record(tmp_path / "jobs/sw/submissions.jsonl", {"job": "2", "settings": [{"lr": "1"}, {"lr": "2"}]})
    (tmp_path / "empty.pt").touch()
    for targets, said in [
        (["exp", "sw"], "'sw' is a sweep of 2 settings; name one, as in 'sw/lr=1'"),
        ([str(run / "model.pt")], "give a second, or a run"),
        (
            ["new"],
            "no rank of run 'new' has saved its model as rank-N.pt; the bundled worker does so with",
        ),
        (["exp", "new"], "'new' has no model.pt: the bundled worker"),
        (["exp", "/dev/null"], "'/dev/null' is not a job id, nor a submitted run in "),
        (["exp", str(tmp_path / "empty.pt")], "empty.pt' is empty; give a file that torch.save has written"),
        (["exp", "none"], "'none' is not a job id, nor a submitted run in "),
        (["none.pt"], "there is no file 'none.pt'; check the path"),
        (["exp", str(tmp_path / "empt.pt")], r"there is no file '.*empt.pt'; did you mean '.*empty.pt'"),
    ]:
        with pytest.raises(UsageError, match=said):
            find_model_files(targets, str(tmp_path / "jobs"))


def test_ranks_whose_statistics_differ_are_told_parameters_apart_from_buffers(compare):
    status, out, _ = compare("exp")
    assert status == 1
    lines = out.splitlines()
    assert lines[1:3] == ["parameters: all 1 the same", "buffers: 1 of 1 differ"]
    assert [line.split()[1:] for line in lines[4:]] == [
        ["KIND", "NAME", "WHAT", "LARGEST", "ELEMENTS"],
        ["buffer", "n.running_mean", "value", "2", "2", "of", "2"],
        ["buffer", "n.running_mean", "value", "10", "2", "of", "2"],
    ]
    status, out, _ = compare("exp", "--json")
    assert (status, len(json.loads(out)["differences"])) == (1, 2)


def test_the_same_is_0_and_unreadable_is_2_with_one_line(compare, run, tmp_path):
    assert compare("exp", run / "model.pt")[0] == 0
    (tmp_path / "x\n.pt").write_bytes(b"no model")
    status, out, said = compare("exp", "x\n.pt")
    assert (status, out) == (2, "")
    assert len(said.splitlines()) == 1 and said.startswith("Error: ")
