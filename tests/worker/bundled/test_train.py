"""The bundled worker trains, and any number of ranks gives the same numbers."""

import os
import subprocess
import sys

import pytest
import torch

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.tasks import Linear


def losses(ended) -> list[float]:
    return [record["values"]["loss"] for record in epochs(ended)]


def epochs(ended) -> list[dict]:
    """What was logged at the ends of epochs; more is logged as time goes by."""
    return [record for record in ended.events("metrics") if "epoch" in record["values"]]


@pytest.mark.preloaded
def test_one_and_two_ranks_and_both_launchers_agree(start):
    """The global batch is the same set of samples: the losses agree, and with as many ranks the weights, bit by bit.

    The rate is small: the rounding of single precision depends on how a batch is split, and grows with each step, with
    kernels for AVX-512 faster than with others.
    """
    one = start("srun", 1, "--epochs", "2", "--batch-size", "64", "--lr=0.003").wait()
    running = [start(launcher, 2, "--epochs=2", "--lr=0.003") for launcher in ("srun", "fork")]
    two, forked = (each.wait() for each in running)
    assert [one.statuses, two.statuses, forked.statuses] == [[0], [0, 0], [0]]
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    assert losses(two) == losses(forked)
    assert [record["values"]["accuracy"] for record in epochs(two)] == pytest.approx(
        [record["values"]["accuracy"] for record in epochs(one)], abs=0.01
    )
    assert two.run.model.read_bytes() == forked.run.model.read_bytes()
    state = torch.load(two.run.model, weights_only=True)
    assert not any(name.startswith("module.") for name in state)
    for name, value in torch.load(one.run.model, weights_only=True).items():
        assert torch.allclose(value, state[name], atol=1e-4), name
    check_words(two)


def check_words(ended) -> None:
    lines = ended.log(0).splitlines()
    assert "world size 2 on 1 node (srun), all-reduce of rank + 1: 3" in lines
    assert any(line.startswith("task mnist, data digits: 1437 training samples, 360 test") for line in lines)
    assert any(line.startswith("global batch 64 (32 a rank), sgd, lr 0.003") for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("epoch ")] == ["1/2", "2/2"]
    assert lines[-1] == f"model saved to {ended.run.model}"
    assert ended.log(1) == "rank 1 of 2 on n1, device cpu\n"
    assert [ended.record(rank) for rank in range(2)] == ["0 done\n", None]
    steps = [record["step"] for record in epochs(ended)]
    assert steps == [22, 44]


@pytest.mark.preloaded
def test_digits_are_learnt_in_the_default_epochs(start):
    ended = start("fork", 2).wait()
    last = ended.events("metrics")[-1]["values"]
    assert (last["epoch"], last["accuracy"] > 0.95) == (10, True)


@pytest.mark.preloaded
def test_linear_recovers_its_weights(alone):
    ended = alone("--task=linear", "--epochs=3")
    found, true = torch.load(ended.run.model, weights_only=True), Linear(WorkerOptions(task="linear"))
    assert torch.allclose(found["weight"], true.weight, rtol=0, atol=1e-4)
    assert torch.allclose(found["bias"], true.bias, rtol=0, atol=1e-4)
    assert ended.events("metrics")[-1]["values"].keys() >= {"epoch", "loss", "samples_per_s", "lr"}


@pytest.mark.preloaded
def test_synthetic_images_are_learnt(alone):
    ended = alone("--data", "synthetic", "--epochs=1")
    assert epochs(ended)[0]["values"]["accuracy"] > 0.9


def test_by_hand_it_trains_and_saves_nothing(tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    command = [sys.executable, "-m", "slurmddp.worker", "--task=linear", "--epochs=1"]
    done = subprocess.run(command, env=clean, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "the model is not saved" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_it_runs_under_torchrun(tmp_path):
    """The ranks agree through the agent's store."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=localhost"]
    command = [*torchrun, "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "-m", "slurmddp.worker", "--task=linear", "--epochs=1"],
        env=clean | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "world size 2 on 1 node (torchrun), all-reduce of rank + 1: 3" in done.stdout
    assert "rank 1 of 2" in done.stdout


def test_an_image_without_a_package_of_the_bundled_worker_is_told_in_one_line(alone, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['msgspec'] = None\n")
    ended = alone("--task=linear", PYTHONPATH=str(tmp_path))
    assert ended.statuses == [77]
    assert ended.stderr.splitlines()[-1].startswith(f"Error: the bundled worker needs msgspec, which {sys.executable}")
    assert "Traceback" not in ended.stderr
