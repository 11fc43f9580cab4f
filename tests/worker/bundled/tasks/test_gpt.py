"""The language model learns a real text, and any split of ranks gives the same numbers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.bundled.tasks.gpt import Windows
from slurmddp.worker.task import Batched

pytestmark = pytest.mark.preloaded

WORDS = ("--task=gpt", "--optimizer=adamw", "--lr=1e-3", "--epochs=1", "--warmup-steps=10")


def values(ended) -> dict:
    return ended.events("metrics")[-1]["values"]


def test_the_end_of_the_text_is_held_out(english):
    task = make_task(WorkerOptions(task="gpt", data=str(english)))
    whole = english.read_bytes()
    first = bytes(task.train[0][0].tolist())
    held_out = bytes(task.test[0][0].tolist())
    assert whole.startswith(first)
    assert whole.index(held_out) >= 0.9 * len(whole) - 1


def test_a_samples_loss_is_the_mean_over_its_bytes():
    task = make_task(WorkerOptions(task="gpt", data="synthetic"))
    targets = torch.randint(256, (3, 128))
    sure = torch.full((3, 128, 256), -1e4).scatter(2, targets.unsqueeze(2), 0.0)
    sure[1, :64] = 0
    losses = task.losses(sure, targets)
    assert losses.tolist() == pytest.approx([0, math.log(256) / 2, 0])
    assert task.metrics(sure, targets)["bits_per_byte"].tolist() == pytest.approx([0, 4, 0])


def test_english_is_learnt(english, start):
    """Better than the frequencies of the letters, which give 4.6 bits a byte."""
    text = english.read_bytes()[:80_000]
    english.write_bytes(text)
    counts = torch.bincount(torch.frombuffer(bytearray(text), dtype=torch.uint8).long()).float()
    shares = counts[counts > 0] / len(text)
    entropy = float(-(shares * shares.log2()).sum())
    ended = start("srun", 1, *WORDS, f"--data={english}", "--lr=3e-3", "--batch-size=4", "--epochs=2").wait(800)
    assert ended.statuses == [0], ended.log(0)
    assert values(ended)["bits_per_byte"] < entropy - 0.3, entropy


@given(length=st.integers(2, 60), context=st.integers(1, 9))
def test_each_byte_is_predicted_once_from_those_before_it(length, context):
    """Up to the end of the last whole window."""
    windows = Windows.of(torch.arange(length, dtype=torch.uint8), context)
    predicted = [int(place) for index in range(len(windows)) for place in windows[index][1]]
    assert predicted == [*range(1, len(windows) * context + 1)]
    assert length - 1 - context < len(predicted) <= length - 1
    for index in range(len(windows)):
        inputs, targets = windows[index]
        assert torch.equal(inputs + 1, targets)


def test_a_batch_is_its_windows():
    windows = Windows.of(torch.randint(256, (100,), dtype=torch.uint8), 7)
    assert isinstance(windows, Batched)
    inputs, targets = windows.to(torch.device("cpu")).batch(torch.tensor([3, 0, 13]))
    for place, index in enumerate([3, 0, 13]):
        assert torch.equal(inputs[place], windows[index][0]) and torch.equal(targets[place], windows[index][1])
    assert (inputs.dtype, inputs.shape) == (torch.int64, (3, 7))
