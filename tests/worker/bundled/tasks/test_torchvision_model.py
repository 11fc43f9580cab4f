"""torchvision's models, by an extra; without it a line says how to get it."""

import sys
import types

import pytest
import torch
from PIL import Image

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks import make_task, task_class

pytestmark = pytest.mark.usefixtures("torchvision_path")


@pytest.fixture
def folder(digits, tmp_path):
    """Return a folder of real pictures, the digits 3 and 7 as PNG files."""
    for part, name in (("train", "train"), ("val", "test")):
        images, classes = digits(name)
        for number in (3, 7):
            place = tmp_path / "pictures" / part / f"digit-{number}"
            place.mkdir(parents=True)
            for index, image in enumerate(images[classes == number][:8]):
                Image.fromarray(image.numpy()).save(place / f"{index}.png")
    return tmp_path / "pictures"


def test_a_folder_of_pictures_is_read(folder):
    task = make_task(WorkerOptions(task="torchvision:resnet18", data=str(folder)))
    assert (len(task.train), len(task.test)) == (16, 16)
    assert task.train[0][0].shape == (3, 256, 256)
    assert task.test[0][0].shape == (3, 224, 224)
    assert task.transform(torch.zeros(2, 3, 256, 256)).shape == (2, 3, 224, 224)
    assert [task.train[index][1] for index in (0, 15)] == [0, 1]
    assert task.model().fc.out_features == 2


def test_it_trains_on_pictures_read_by_loader_processes(folder, start, torchvision_path):
    words = ["--task=torchvision:squeezenet1_1", f"--data={folder}", "--epochs=1", "--batch-size=8", "--workers=1"]
    ended = start("srun", 1, *words, "--lr=0.001", PYTHONPATH=torchvision_path).wait(800)
    assert ended.statuses == [0], ended.log(0)
    assert ended.events("metrics")[-1]["values"]["accuracy"] is not None
    state = torch.load(ended.run.model, weights_only=True)
    from torchvision.models import squeezenet1_1  # noqa: PLC0415 - the fixture makes it importable

    squeezenet1_1(num_classes=2).load_state_dict(state)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_a_model_with_several_outputs_gives_one(name):
    task = make_task(WorkerOptions(task=f"torchvision:{name}", data="synthetic"))
    with torch.no_grad():
        assert task.model()(torch.zeros(2, 3, 224, 224)).shape == (2, 10)


def test_a_model_that_torchvision_has_not_is_one_line():
    with pytest.raises(UsageError, match="torchvision: unknown model 'resnet51'; did you mean resnet50"):
        make_task(WorkerOptions(task="torchvision:resnet51", data="synthetic"))


def test_classes_that_only_one_part_has_are_named(folder):
    (folder / "val" / "digit-7").rename(folder / "val" / "digit-8")
    with pytest.raises(UsageError, match="train and val must have the same classes; only one of them has digit-7"):
        make_task(WorkerOptions(task="torchvision:resnet18", data=str(folder)))


def test_a_class_without_pictures_is_named(folder):
    for path in (folder / "train" / "digit-3").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="digit-3"):
        make_task(WorkerOptions(task="torchvision:resnet18", data=str(folder)))


def test_a_package_for_another_torch_is_one_line(monkeypatch):
    """Its import then fails by RuntimeError, for an operator that its library would have declared."""
    monkeypatch.setitem(sys.modules, "torchvision", Broken("torchvision"))
    with pytest.raises(UsageError, match=r"torchvision does not fit torch .*: operator .* does not exist"):
        make_task(WorkerOptions(task="torchvision:resnet18", data="synthetic"))


class Broken(types.ModuleType):
    """What an import that is cut short leaves."""

    def __getattr__(self, name: str):
        """Fail as the import of `models` from it does."""
        raise RuntimeError("operator torchvision::nms does not exist")


def test_without_the_package_a_line_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    options = WorkerOptions(task="torchvision:resnet18", data="synthetic")
    for ask in (make_task, task_class(options.task).prepare):
        with pytest.raises(UsageError, match=r"needs torchvision; type: pip install 'slurmddp\[vision\]'"):
            ask(options)
