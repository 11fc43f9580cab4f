"""CIFAR-10's binary version is read as it was written, and broken files are named."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.errors import UsageError
from slurmddp.worker.bundled.data.cifar import read_cifar

CLASSES = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def record(number: int, pixel: int) -> bytes:
    return bytes((number,)) + bytes([pixel] * 1024 + [pixel ^ 255] * 1024 + [*range(256)] * 4)


@settings(deadline=None)  # files are written
@given(files=st.lists(CLASSES, min_size=1, max_size=3))
def test_what_was_written_is_read(files):
    """A record is its class, then the red, the green and the blue plane, row by row."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(files))]
        for path, classes in zip(paths, files, strict=True):
            path.write_bytes(b"".join(record(number, 7 * number) for number in classes))
        images, labels = read_cifar(paths)
    wanted = [number for classes in files for number in classes]
    assert labels.tolist() == wanted
    assert images.shape == (len(wanted), 3, 32, 32)
    for image, number in zip(images, wanted, strict=True):
        assert set(image[0].flatten().tolist()) == {7 * number}
        assert set(image[1].flatten().tolist()) == {7 * number ^ 255}
        assert image[2].flatten().tolist() == [*range(256)] * 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x has 0 bytes, which is no number of records of 3073"),
        (record(1, 0)[:-1], "x has 3072 bytes, which is no number of records of 3073"),
        (record(1, 0) + record(10, 0), "x has a record of class 10; CIFAR-10's classes are 0 to 9"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_cifar([path])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="none cannot be read: No such file"):
        read_cifar([tmp_path / "none"])
