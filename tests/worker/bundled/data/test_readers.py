"""Data files are read as they were written, and broken ones are named."""

import gzip
import math
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.data.readers import read_cifar, read_idx, read_pair, read_text

SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=3)
CLASSES = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def idx(shape: list[int], values: bytes) -> bytes:
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + values


@settings(deadline=None)  # files are written
@given(shape=SHAPES, data=st.data(), packed=st.booleans())
def test_an_idx_file_is_read_as_it_was_written(shape, data, packed):
    values = data.draw(st.binary(min_size=math.prod(shape), max_size=math.prod(shape)))
    content = idx(shape, values)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("x.gz" if packed else "x")
        path.write_bytes(gzip.compress(content) if packed else content)
        tensor = read_idx(path, len(shape))
    assert list(tensor.shape) == shape
    assert bytes(tensor.flatten().tolist()) == values


@settings(deadline=None)  # files are written
@given(shape=SHAPES, data=st.data())
def test_no_torn_or_changed_header_is_read(shape, data):
    whole = idx(shape, bytes(math.prod(shape)))
    cut = data.draw(st.integers(0, len(whole) - 1))
    place = data.draw(st.integers(0, 3))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        for broken in (whole[:cut], whole + b"x", bytes(changed)):
            path.write_bytes(broken)
            with pytest.raises(UsageError, match="x "):
                read_idx(path, len(shape))


@pytest.mark.parametrize("read", [read_text, lambda path: read_idx(path, 1), lambda path: read_cifar([path])])
def test_a_missing_file_is_named(tmp_path, read):
    with pytest.raises(UsageError, match="none cannot be read: No such file"):
        read(tmp_path / "none")


def test_images_and_labels_must_be_as_many_and_not_none(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(idx([2, 1, 1], b"ab"))
    labels.write_bytes(idx([1], b"a"))
    with pytest.raises(UsageError, match=r"images holds 2 images, but .*labels holds 1 labels"):
        read_pair(images, labels)
    images.write_bytes(idx([0, 1, 1], b""))
    labels.write_bytes(idx([0], b""))
    with pytest.raises(UsageError, match=r"images holds no pixels: its sizes are \(0, 1, 1\)"):
        read_pair(images, labels)


def test_the_digits_travel_with_the_package():
    files = find_data(WorkerOptions())
    images, labels = read_pair(*files[:2])
    assert (tuple(images.shape), int(labels.max())) == ((1437, 8, 8), 9)
    assert len(read_pair(*files[2:])[0]) == 360


def record(number: int, pixel: int) -> bytes:
    return bytes((number,)) + bytes([pixel] * 1024 + [pixel ^ 255] * 1024 + [*range(256)] * 4)


@settings(deadline=None)  # files are written
@given(files=st.lists(CLASSES, min_size=1, max_size=3))
def test_a_cifar_file_is_read_as_it_was_written(files):
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
    ("read", "name", "content", "message"),
    [
        (read_idx, "x", b"\0\0\x08", r"x ends within its header \(3 bytes\)"),
        (read_idx, "x", idx([2], b"ab")[:9], r"x holds 1 values, but its sizes \(2,\) ask for 2"),
        (read_idx, "x", b"\0\0\x0d\x01\0\0\0\0", "x starts with 00 00 0d 01; an IDX file .* starts with 00 00 08 01"),
        (read_idx, "x.gz", b"not packed", "x.gz cannot be read"),
        (read_idx, "x.gz", gzip.compress(idx([2], b"ab"), mtime=0)[:-3], "x.gz cannot be read"),
        (read_cifar, "x", record(1, 0) + record(10, 0), "x has a record of class 10; CIFAR-10's classes are 0 to 9"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path, read, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_idx(path, 1) if read is read_idx else read_cifar([path])


def test_any_bytes_are_a_text(tmp_path):
    (tmp_path / "x").write_bytes(bytes(range(256)))
    assert read_text(tmp_path / "x").tolist() == [*range(256)]
