"""Each option of the bundled worker trains, agrees with the plain training where it must, and resumes bit by bit."""

import socket
from pathlib import Path

import pytest
import torch
from preload import Preloaded, clean_environment

PROGRAM = str(Path(__file__).parents[2] / "programs" / "options.py")
LINEAR = "--task=linear --epochs=1 --batch-size=64"
IMAGES = "--epochs=1"
CASES = {
    "plain": LINEAR,
    "buckets": f"{LINEAR} --bucket-mb=0.0001",
    "unused": f"{LINEAR} --find-unused-parameters",
    "compiled": f"{LINEAR} --compile",
    "adamw": f"{LINEAR} --optimizer=adamw --weight-decay=0.1 --schedule=cosine --warmup-steps=5 --lr-scaling=linear",
    "fsdp": f"{LINEAR} --strategy=fsdp",
    "double": f"{LINEAR} --precision=fp64",
    "double-images": f"{IMAGES} --precision=fp64",
    "accumulate": f"{LINEAR} --accumulate=2",
    "images": IMAGES,
    "last": f"{IMAGES} --channels-last",
    "bf16": f"{LINEAR} --precision=bf16",
}


ALONE = {
    "double": f"{LINEAR} --precision=fp64 --accumulate=2",
    "double-images": f"{IMAGES} --precision=fp64 --batch-size=64",
    "one": f"{LINEAR} --batch-size=128",
}


def trained(server: Path, ranks: int, cases: dict[str, str], folder: Path) -> dict[str, dict]:
    """Train all cases in one group of ranks, which are told of it as torchrun tells its own."""
    words = [PROGRAM, str(folder), *(f"{name}={options}" for name, options in cases.items())]
    with socket.create_server(("127.0.0.1", 0)) as free:
        head = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    processes = [
        Preloaded(
            server, words, {**clean_environment(), **head, **sizes, "RANK": rank, "LOCAL_RANK": rank}, folder, None
        )
        for rank in map(str, range(ranks))
    ]
    for process in processes:
        _, errors = process.communicate(800)
        assert process.returncode == 0, errors[-4000:]
    return {name: torch.load(folder / f"{name}.pt", weights_only=True) for name in cases}


@pytest.fixture(scope="module")
def two(preloaded, tmp_path_factory):
    return trained(preloaded, 2, CASES, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def one(preloaded, tmp_path_factory):
    return trained(preloaded, 1, ALONE, tmp_path_factory.mktemp("one"))


def same(first: dict, second: dict, tolerance: float = 0.0) -> bool:
    return all(torch.allclose(first[name], second[name], rtol=tolerance, atol=tolerance) for name in first)


@pytest.mark.parametrize("case", CASES)
def test_it_learns_and_all_ranks_hold_the_same_model(two, case):
    losses = two[case]["losses"]
    assert losses[-1] < losses[0] / 2
    assert two[case]["agree"]


@pytest.mark.parametrize("case", CASES)
def test_after_a_crash_it_ends_with_the_same_bits(two, case):
    result = two[case]
    assert same(result["calm"], result["again"])
    resumed = len(result["losses"]) - result["taken"]
    assert (resumed > 0, resumed % 5) == (True, 0), "it went on from a checkpoint"


@pytest.mark.parametrize(
    ("case", "plain", "tolerance"),
    [
        ("buckets", "plain", 0),
        ("unused", "plain", 0),
        ("compiled", "plain", 1e-6),
        ("fsdp", "plain", 1e-6),
        ("last", "images", 1e-2),
    ],
)
def test_what_changes_the_work_alone_changes_no_result(two, case, plain, tolerance):
    assert same(two[case]["calm"], two[plain]["calm"], tolerance)


@pytest.mark.parametrize(("case", "plain"), [("bf16", "plain"), ("accumulate", "plain")])
def test_what_changes_the_arithmetic_changes_the_result(two, case, plain):
    assert not same(two[case]["calm"], two[plain]["calm"])


def test_accumulating_two_batches_is_two_ranks(two, one):
    assert same(two["double"]["calm"], one["double"]["calm"], 1e-12)


def test_a_net_without_buffers_does_not_see_how_a_batch_is_split(two, one):
    assert same(two["double-images"]["calm"], one["double-images"]["calm"], 1e-10)
