"""A text is read as bytes, and its windows leave nothing out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.errors import UsageError
from slurmddp.worker.bundled.data.text import Windows, read_text
from slurmddp.worker.task import Batched


@given(length=st.integers(2, 60), context=st.integers(1, 9))
def test_each_byte_is_predicted_once_from_those_before_it(length, context):
    """Up to the end of the last whole window."""
    windows = Windows(torch.arange(length, dtype=torch.uint8), context)
    predicted = [int(place) for index in range(len(windows)) for place in windows[index][1]]
    assert predicted == [*range(1, len(windows) * context + 1)]
    assert length - 1 - context < len(predicted) <= length - 1
    for index in range(len(windows)):
        inputs, targets = windows[index]
        assert torch.equal(inputs + 1, targets)


def test_a_batch_is_its_windows():
    windows = Windows(torch.randint(256, (100,), dtype=torch.uint8), 7)
    assert isinstance(windows, Batched)
    inputs, targets = windows.to(torch.device("cpu")).batch(torch.tensor([3, 0, 13]))
    for place, index in enumerate([3, 0, 13]):
        assert torch.equal(inputs[place], windows[index][0]) and torch.equal(targets[place], windows[index][1])
    assert (inputs.dtype, inputs.shape) == (torch.int64, (3, 7))


def test_any_bytes_are_a_text(tmp_path):
    (tmp_path / "x").write_bytes(bytes(range(256)))
    assert read_text(tmp_path / "x").tolist() == [*range(256)]


def test_a_missing_or_empty_text_is_named(tmp_path):
    with pytest.raises(UsageError, match="none cannot be read: No such file"):
        read_text(tmp_path / "none")
    (tmp_path / "x").touch()
    with pytest.raises(UsageError, match="x is empty"):
        read_text(tmp_path / "x")
