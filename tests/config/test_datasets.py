"""What is missing of a task's data is said in one line, before the queue."""

import pytest

from slurmddp.config.datasets import CIFAR_NAMES, CIFAR_RECORD, DIGITS, IDX_STEMS, find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError


def test_data_is_found_or_made():
    assert [path.parent for path in find_data(WorkerOptions())] == [DIGITS] * 4
    for task in ("linear", "mnist", "cifar10", "gpt", "torchvision:resnet18"):
        assert find_data(WorkerOptions(task=task, data="synthetic")) is None
    assert find_data(WorkerOptions(task="linear")) is None
    for data in (None, "anything"):  # a task of the user's own finds its data
        assert find_data(WorkerOptions(task="hills:Hills", data=data)) is None


def test_a_folder_of_idx_files_may_hold_them_packed_or_plain(tmp_path):
    for number, stem in enumerate(IDX_STEMS):
        (tmp_path / (stem if number % 2 else f"{stem}.gz")).touch()
    assert find_data(WorkerOptions(data=str(tmp_path))) == [
        tmp_path / (stem if number % 2 else f"{stem}.gz") for number, stem in enumerate(IDX_STEMS)
    ]


def test_cifar_is_six_files_of_whole_images(tmp_path):
    for name in CIFAR_NAMES:
        (tmp_path / name).write_bytes(bytes(2 * CIFAR_RECORD))
    assert find_data(WorkerOptions(task="cifar10", data=str(tmp_path))) == [tmp_path / name for name in CIFAR_NAMES]
    (tmp_path / "data_batch_4.bin").write_bytes(bytes(2 * CIFAR_RECORD - 1))
    with pytest.raises(UsageError, match=r"data_batch_4.bin has 6145 bytes, not a multiple of 3073 \(one image\)"):
        find_data(WorkerOptions(task="cifar10", data=str(tmp_path)))


def test_a_folder_of_images_has_train_and_val(tmp_path):
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "val").mkdir()
    options = WorkerOptions(task="torchvision:resnet18", data=str(tmp_path))
    with pytest.raises(UsageError, match="has no val/CLASS/ with images; give a folder with train/CLASS/"):
        find_data(options)
    (tmp_path / "val" / "cat").mkdir()
    assert find_data(options) == [tmp_path / "train", tmp_path / "val"]


def test_a_text_has_a_least_length(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(4096))
    assert find_data(WorkerOptions(task="gpt", data=str(text))) == [text]
    text.write_bytes(bytes(4095))
    with pytest.raises(UsageError, match="text' has 4095 bytes; at least 4096 are needed"):
        find_data(WorkerOptions(task="gpt", data=str(text)))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("mnist", "none' is not a folder; allowed are digits, synthetic, or a folder of IDX files"),
        ("cifar10", "none' has no data_batch_1.bin; give the folder of CIFAR-10's binary version"),
        ("gpt", "none' is not a file; give a text file, or type --data synthetic"),
        ("torchvision:resnet18", "none' has no train/CLASS/ with images; give a folder with"),
        ("linear", "with --task linear, which makes its own data; leave it out"),
    ],
)
def test_data_that_is_not_there_is_one_line(tmp_path, task, message):
    with pytest.raises(UsageError, match=message):
        find_data(WorkerOptions(task=task, data=str(tmp_path / "none")))


def test_a_missing_idx_file_is_named(tmp_path):
    for stem in IDX_STEMS[:-1]:
        (tmp_path / stem).touch()
    with pytest.raises(UsageError, match=r"has neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte\.gz; give"):
        find_data(WorkerOptions(data=str(tmp_path)))


@pytest.mark.parametrize("task", ["cifar10", "gpt", "torchvision:resnet18"])
def test_a_task_without_data_of_its_own_asks_for_some(task):
    with pytest.raises(UsageError, match=rf"--task {task} needs --data; give .*, or type --data synthetic"):
        find_data(WorkerOptions(task=task))
