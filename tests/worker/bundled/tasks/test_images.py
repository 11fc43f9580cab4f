"""The small convolutional net takes grey images of any size; files that do not go together are refused."""

import pytest

from slurmddp.config.datasets import IDX_STEMS
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.task import InMemory


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
    with pytest.raises(UsageError, match=r"holds images of \(3, 6\) pixels; the least is 4 each way"):
        make_task(options)


@pytest.mark.parametrize("size", [4, 8, 16, 28])
def test_the_net_fits_images_of_any_size(size):
    task = make_task(WorkerOptions(data="synthetic"))
    task.train = InMemory(task.train.inputs[:2, :, :size, :size], task.train.targets[:2])
    assert task.model()(task.train.inputs).shape == (2, 10)
