"""Pictures in memory, and their augmentation: what may move, by how much, and by which generator."""

import pytest
import torch

from slurmddp.worker.bundled.tasks.pictures import Pictures, mirrored, part, shifted
from slurmddp.worker.task import Batched


def numbered(samples: int, height: int, width: int) -> torch.Tensor:
    """Images in which every pixel has a number of its own, never 0."""
    return torch.arange(1, samples * 3 * height * width + 1).reshape(samples, 3, height, width)


def test_a_batch_is_its_pictures_around_their_mean():
    images = torch.randint(256, (5, 3, 4, 4), dtype=torch.uint8)
    pictures = Pictures(images, torch.arange(5, dtype=torch.uint8))
    assert isinstance(pictures, Batched)
    inputs, targets = pictures.to(torch.device("cpu")).batch(torch.tensor([4, 1]))
    assert (inputs.dtype, targets.tolist()) == (torch.float32, [4, 1])
    for place, index in enumerate([4, 1]):
        assert torch.equal(inputs[place], pictures[index][0]) and pictures[index][1] == index
    back = inputs * torch.tensor(Pictures.deviation).view(3, 1, 1) + torch.tensor(Pictures.mean).view(3, 1, 1)
    assert torch.allclose(back, images[[4, 1]].float(), atol=1e-3)


def test_a_shifted_image_is_moved_by_at_most_so_many_pixels():
    torch.manual_seed(0)
    images = numbered(200, 6, 5)
    moved = shifted(images, 2)
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
    parts = part(images, (3, 3))
    assert parts.shape == (300, 3, 3, 3)
    begins = {divmod(int(after[0, 0, 0] - before[0, 0, 0]), 5) for before, after in zip(images, parts, strict=True)}
    assert begins == {(top, left) for top in range(2) for left in range(3)}
    assert all((after[:, 1:, 0] - after[:, :-1, 0] == 5).all() for after in parts)


def test_half_of_the_images_are_mirrored_as_a_whole():
    torch.manual_seed(0)
    images = numbered(400, 2, 3)
    turned = mirrored(images)
    flipped = [torch.equal(after, before.flip(2)) for before, after in zip(images, turned, strict=True)]
    same = [torch.equal(after, before) for before, after in zip(images, turned, strict=True)]
    assert all(one != other for one, other in zip(flipped, same, strict=True))
    assert 150 < sum(flipped) < 250


@pytest.mark.parametrize("act", [mirrored, lambda images: shifted(images, 2), lambda images: part(images, (3, 3))])
def test_chance_is_torchs_default_generator(act):
    """So that it is saved with a rank's state, and a resumed run draws the same."""
    images = numbered(64, 5, 5)
    torch.manual_seed(3)
    first, second = act(images), act(images)
    torch.manual_seed(3)
    assert torch.equal(act(images), first)
    assert not torch.equal(first, second)
