"""What differs between the tensors of two files."""

import math
import os

import pytest
import torch
from torch import nn

from slurmddp.errors import UsageError
from slurmddp.runtime.compare_models import compare, read


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a state and returns the file."""
    numbers = iter(range(100))

    def save(state):
        path = tmp_path / f"{next(numbers)}.pt"
        torch.save(state, path)
        return path

    return save


def state(**changes) -> dict:
    return {name: value.detach().clone() for name, value in model().state_dict().items()} | changes


def test_the_same_are_the_same_also_wrapped_and_with_nan(saved):
    nan = {"0.bias": torch.tensor([math.nan, 1.0, math.inf])}
    wrapped = {f"module.{name}": value for name, value in state(**nan).items()}
    result = compare([saved(state(**nan)), saved(wrapped), saved(state(**nan))])
    assert (result["same"], result["differences"]) == (True, [])
    assert result["compared"] == {"parameter": 4, "buffer": 3}


def test_batch_statistics_are_buffers_and_differ_alone(saved):
    other = state()
    other["1.running_mean"] += torch.tensor([0.0, 0.5, math.nan])
    (difference,) = compare([saved(state()), second := saved(other)])["differences"]
    assert difference == {
        "file": str(second),
        "name": "1.running_mean",
        "kind": "buffer",
        "what": "value",
        "first": "float32 3",
        "second": "float32 3",
        "elements": 3,
        "differing": 2,
        "largest": "inf",
    }


@pytest.mark.parametrize(
    ("changes", "name", "what"),
    [
        ({"new": torch.zeros(1)}, "new", "extra"),
        ({"0.bias": torch.zeros(4)}, "0.bias", "shape"),
        ({"0.bias": state()["0.bias"].double()}, "0.bias", "dtype"),
        ({"0.bias": 1.5}, "0.bias", "kind"),
        ({"epoch": [1, "two"]}, "epoch.0", "extra"),
    ],
)
def test_what_is_different_is_named(saved, changes, name, what):
    found = {item["name"]: item["what"] for item in compare([saved(state()), saved(state(**changes))])["differences"]}
    assert found[name] == what


def test_a_missing_name_is_told_with_its_shape(saved):
    (difference,) = compare([saved(state(more=torch.zeros(2, 3))), saved(state())])["differences"]
    assert (difference["name"], difference["what"], difference["first"]) == ("more", "missing", "float32 2x3")


@pytest.mark.parametrize(
    ("first", "second", "differing", "largest"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 1, 0.5),
        (torch.tensor([2**62]), torch.tensor([2**62 + 1]), 1, 1.0),
        (torch.tensor([True, False]), torch.tensor([True, True]), 1, 1.0),
        (torch.tensor([1j]), torch.tensor([-1j]), 1, 2.0),
        (torch.ones(3).to(torch.float8_e4m3fn), torch.zeros(3).to(torch.float8_e4m3fn), 3, 1.0),
        (torch.tensor(3.0), torch.tensor(1.0), 1, 2.0),
        (torch.eye(2).to_sparse(), torch.zeros(2, 2).to_sparse(), 2, 1.0),
    ],
    ids=["float", "large integers", "bool", "complex", "float8", "scalar", "sparse"],
)
def test_every_kind_of_number_is_compared(saved, first, second, differing, largest):
    (item,) = compare([saved({"x": first}), saved({"x": second})])["differences"]
    assert (item["differing"], item["largest"]) == (differing, largest)


def test_small_differences_can_be_allowed(saved):
    files = [saved({"x": torch.tensor([1.0, 2.0])}), saved({"x": torch.tensor([1.001, 2.0])})]
    assert compare(files, atol=0.01)["same"]
    assert not compare(files, atol=0.0001)["same"]
    steps = [saved({"x": torch.tensor([2**53])}), saved({"x": torch.tensor([2**53 + 1])})]
    assert compare(steps, atol=1.0)["same"] and not compare(steps, atol=0.5)["same"]


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):  # noqa: D105 - what pickle calls
        return os.mkdir, (self.path,)


def test_a_hostile_file_is_one_line_and_runs_nothing(saved, tmp_path):
    with pytest.raises(UsageError, match="no file of plain tensors") as raised:
        read(saved({"x": Hostile(str(tmp_path / "run"))}))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_broken_files_are_one_line(saved, tmp_path):
    whole = saved(state()).read_bytes()
    for number, content in enumerate((b"", b"x", whole[: len(whole) // 2], whole[:-100], b"\x80\x02}q\x00.")):
        path = tmp_path / f"broken-{number}"
        path.write_bytes(content)
        with pytest.raises(UsageError) as raised:
            read(path)
        assert str(raised.value).startswith(f"{path} ")
        assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no tensors"):
        read(saved([1, 2]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({1: torch.zeros(1), "1": torch.ones(1)}, "has two entries called 1; rename one"),
        ({"w": torch.zeros(2, device="meta")}, "holds w, whose elements cannot be compared one by one"),
        ({"w": torch.zeros(1).expand(10**11)}, "holds w, a tensor of more elements than the file has of it"),
    ],
    ids=["name", "meta", "expanded"],
)
def test_what_cannot_be_compared_is_one_line(saved, content, message):
    with pytest.raises(UsageError, match=message):
        compare([saved(content)])


def test_a_file_of_too_many_entries_is_refused_before_all_are_counted(saved):
    nested = [torch.zeros(1)]
    for _ in range(28):
        nested = [nested, nested]
    with pytest.raises(UsageError, match="holds more than 1048576 entries"):
        compare([saved(nested)])
