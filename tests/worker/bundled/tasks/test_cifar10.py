"""ResNet-18 learns real pictures in CIFAR's format."""

import pytest

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.tasks import make_task

pytestmark = pytest.mark.preloaded


def test_the_pictures_are_those_of_the_files(digits, digits_as_cifar):
    task = make_task(WorkerOptions(task="cifar10", data=str(digits_as_cifar(50, 20))))
    assert (len(task.train), len(task.test)) == (50, 20)
    images, classes = digits("test")
    inputs, target = task.test[7]
    assert (inputs.shape, int(target)) == ((3, 32, 32), int(classes[7]))
    assert float(inputs[1, 30, 31] * 62.1 + 123.0) - float(images[7, 7, 7]) < 1e-3


def test_handwriting_is_learnt_in_a_few_steps(digits_as_cifar, start):
    """Forty steps on noughts and ones; chance is 0.5."""
    folder = digits_as_cifar(200, 60, among=(0, 1))
    words = [f"--data={folder}", "--epochs=1", "--batch-size=5", "--lr=0.005", "--schedule=linear"]
    ended = start("srun", 1, "--task=cifar10", *words).wait(280)
    assert ended.statuses == [0], ended.log(0)
    found = ended.events("metrics")[-1]["values"]["accuracy"]
    assert found > 0.8
