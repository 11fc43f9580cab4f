"""Image classification: files, augmentation, and what the networks learn."""

import pytest
import torch

from slurmddp.config.datasets import IDX_STEMS
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.bundled.tasks.classification import ColourImages, crop, mirror, shift
from slurmddp.worker.task import Batched, InMemory


def numbered(samples: int, height: int, width: int) -> torch.Tensor:
    """Images in which every pixel has a number of its own, never 0."""
    return torch.arange(1, samples * 3 * height * width + 1).reshape(samples, 3, height, width)


def test_a_batch_is_its_pictures_around_their_mean():
    images = torch.randint(256, (5, 3, 4, 4), dtype=torch.uint8)
    pictures = ColourImages(images, torch.arange(5, dtype=torch.uint8))
    assert isinstance(pictures, Batched)
    inputs, targets = pictures.to(torch.device("cpu")).batch(torch.tensor([4, 1]))
    assert (inputs.dtype, targets.tolist()) == (torch.float32, [4, 1])
    for place, index in enumerate([4, 1]):
        assert torch.equal(inputs[place], pictures[index][0]) and pictures[index][1] == index
    back = inputs * torch.tensor(ColourImages.deviation).view(3, 1, 1) + torch.tensor(ColourImages.mean).view(3, 1, 1)
    assert torch.allclose(back, images[[4, 1]].float(), atol=1e-3)


def test_a_shifted_image_is_moved_by_at_most_so_many_pixels():
    torch.manual_seed(0)
    images = numbered(200, 6, 5)
    moved = shift(images, 2)
    assert moved.shape == images.shape
    places = set()
    for before, after in zip(images, moved, strict=True):
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(after, moved_by(before, down, right))
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) == 25, "each of the places is taken by some"


def moved_by(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
    return padded[:, 2 - down : 2 - down + image.shape[1], 2 - right : 2 - right + image.shape[2]]


def test_a_part_lies_anywhere_within_and_is_whole():
    images = numbered(300, 4, 5)
    parts = crop(images, (3, 3))
    assert parts.shape == (300, 3, 3, 3)
    begins = {divmod(int(after[0, 0, 0] - before[0, 0, 0]), 5) for before, after in zip(images, parts, strict=True)}
    assert begins == {(top, left) for top in range(2) for left in range(3)}
    assert all((after[:, 1:, 0] - after[:, :-1, 0] == 5).all() for after in parts)


def test_half_of_the_images_are_mirrored_as_a_whole():
    torch.manual_seed(0)
    images = numbered(400, 2, 3)
    turned = mirror(images)
    flipped = [torch.equal(after, before.flip(2)) for before, after in zip(images, turned, strict=True)]
    same = [torch.equal(after, before) for before, after in zip(images, turned, strict=True)]
    assert all(one != other for one, other in zip(flipped, same, strict=True))
    assert 150 < sum(flipped) < 250


@pytest.mark.parametrize("act", [mirror, lambda images: shift(images, 2), lambda images: crop(images, (3, 3))])
def test_chance_is_torchs_default_generator(act):
    """So that it is saved with a rank's state, and a resumed run draws the same."""
    images = numbered(64, 5, 5)
    torch.manual_seed(3)
    first, second = act(images), act(images)
    torch.manual_seed(3)
    assert torch.equal(act(images), first)
    assert not torch.equal(first, second)


def test_images_of_two_sizes_or_too_small_are_refused(tmp_path):
    def write(stem: str, *sizes: int) -> None:
        values = 1
        for size in sizes:
            values *= size
        header = bytes((0, 0, 8, len(sizes))) + b"".join(size.to_bytes(4, "big") for size in sizes)
        (tmp_path / stem).write_bytes(header + bytes(values))

    write(IDX_STEMS[0], 2, 8, 8)
    write(IDX_STEMS[1], 2)
    write(IDX_STEMS[2], 2, 6, 6)
    write(IDX_STEMS[3], 2)
    options = WorkerOptions(data=str(tmp_path))
    with pytest.raises(UsageError, match=r"holds images of \(8, 8\) pixels, but .* of \(6, 6\)"):
        make_task(options)
    write(IDX_STEMS[0], 2, 3, 6)
    write(IDX_STEMS[2], 2, 3, 6)
    with pytest.raises(UsageError, match=r"holds images of \(3, 6\) pixels; the least is 4 in each direction"):
        make_task(options)


@pytest.mark.parametrize("size", [4, 8, 16, 28])
def test_the_net_fits_images_of_any_size(size):
    task = make_task(WorkerOptions(data="synthetic"))
    task.train = InMemory(task.train.inputs[:2, :, :size, :size], task.train.targets[:2])
    assert task.model()(task.train.inputs).shape == (2, 10)


@pytest.mark.preloaded
def test_the_pictures_are_those_of_the_files(digits, digits_as_cifar):
    task = make_task(WorkerOptions(task="cifar10", data=str(digits_as_cifar(50, 20))))
    assert (len(task.train), len(task.test)) == (50, 20)
    images, classes = digits("test")
    inputs, target = task.test[7]
    assert (inputs.shape, int(target)) == ((3, 32, 32), int(classes[7]))
    assert float(inputs[1, 30, 31] * 62.1 + 123.0) - float(images[7, 7, 7]) < 1e-3


@pytest.mark.preloaded
def test_handwriting_is_learnt_in_a_few_steps(digits_as_cifar, start):
    """Eighty steps on noughts and ones; chance is 0.5. After forty it is 0.65 to 1.0, by processor and seed."""
    folder = digits_as_cifar(200, 60, among=(0, 1))
    words = [f"--data={folder}", "--epochs=2", "--batch-size=5", "--lr=0.005", "--schedule=linear"]
    ended = start("srun", 1, "--task=cifar10", *words).wait(800)
    assert ended.statuses == [0], ended.log(0)
    found = ended.events("metrics")[-1]["values"]["accuracy"]
    assert found > 0.8
