"""Finds the files of a data set. No torch: the command line checks them before the job is queued."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

DIGITS = Path(__file__).parents[1] / "worker" / "bundled" / "data" / "digits"
"""1797 handwritten digits of 8x8 pixels; they are part of the package."""

IDX_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""MNIST's file names; Fashion-MNIST and others use them too."""

CIFAR_NAMES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
"""CIFAR-10's file names; the last is the test set (https://www.cs.toronto.edu/~kriz/cifar.html, binary version)."""
CIFAR_RECORD = 1 + 3 * 32 * 32
"""Bytes of one image: its class, then three planes of 32x32 pixels."""

SMALLEST_TEXT = 4096
"""Bytes; the last tenth of a text is the validation set, which needs one whole window."""

PARTS = ("train", "val")
"""The folders of an image data set in ImageNet's layout; each has one folder per class."""


def find_data(options: WorkerOptions) -> Path | None:
    """Return the path of a task's data; None for synthetic data, and for the user's own task, which finds its data.

    Raises UsageError when the data is missing, or the task does not use it.
    """
    task = "torchvision" if options.task.startswith("torchvision:") else options.task
    if task == "linear" and options.source != "synthetic":
        raise UsageError(
            f"--data {quote_value(options.data)} with --task linear, which makes its own data; leave it out"
        )
    if task not in _FINDERS or options.source == "synthetic":
        return None
    if options.source is None:
        raise UsageError(f"--task {options.task} needs --data; give {_WANTED[task]}, or type --data synthetic")
    path = DIGITS if (task, options.source) == ("mnist", "digits") else Path(options.source)
    _FINDERS[task](path)
    return path


def find_idx(folder: Path) -> dict[str, Path]:
    """Return the file for each of IDX_STEMS, plain or `.gz`.

    Raises UsageError that names the folder and the missing file.
    """
    if not folder.is_dir():
        raise UsageError(
            f"--data {quote_value(str(folder))} is not a folder; allowed are digits, synthetic, or a folder of IDX "
            "files"
        )
    return {stem: _find_idx(folder, stem) for stem in IDX_STEMS}


def find_cifar(folder: Path) -> list[Path]:
    """Return the files of CIFAR-10's binary version: five to train on, and the test set last.

    Raises UsageError with the file that is missing, or whose size is not a whole number of images.
    """
    for path in (paths := [folder / name for name in CIFAR_NAMES]):
        if not path.is_file():
            raise UsageError(
                f"--data {quote_value(str(folder))} has no {path.name}; give the folder of CIFAR-10's binary version "
                "(cifar-10-batches-bin), or type --data synthetic"
            )
        size = path.stat().st_size
        if not size or size % CIFAR_RECORD:
            raise UsageError(
                f"{path} has {size} bytes, not a multiple of {CIFAR_RECORD} (one image); download it again"
            )
    return paths


def find_text(path: Path) -> Path:
    """Return the path of a text. Raises UsageError when it is missing or too short."""
    if not path.is_file():
        raise UsageError(f"--data {quote_value(str(path))} is not a file; give a text file, or type --data synthetic")
    size = path.stat().st_size
    if size < SMALLEST_TEXT:
        raise UsageError(f"--data {quote_value(str(path))} has {size} bytes; at least {SMALLEST_TEXT} are needed")
    return path


def find_parts(folder: Path) -> list[Path]:
    """Return the folders train and val of an image data set.

    Raises UsageError with the folder that is missing or has no folder of a class.
    """
    for part in (parts := [folder / name for name in PARTS]):
        if not part.is_dir() or not any(entry.is_dir() for entry in part.iterdir()):
            raise UsageError(
                f"--data {quote_value(str(folder))} has no {part.name}/CLASS/ with images; "
                "give a folder with train/CLASS/ and val/CLASS/, or type --data synthetic"
            )
    return parts


def _find_idx(folder: Path, stem: str) -> Path:
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    raise UsageError(
        f"--data {quote_value(str(folder))} has neither {stem} nor {stem}.gz; put MNIST's four IDX files there, "
        "or type --data digits"
    )


_FINDERS: Final[dict[str, Callable[[Path], object]]] = {
    "mnist": find_idx,
    "cifar10": find_cifar,
    "gpt": find_text,
    "torchvision": find_parts,
}
_WANTED: Final = {
    "cifar10": "the folder of CIFAR-10's binary version",
    "gpt": "a file of text",
    "torchvision": "a folder with train/CLASS/ and val/CLASS/",
}
