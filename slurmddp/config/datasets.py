"""Finds the files of a data set. No torch: the command line checks them before the job is queued."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

DIGITS = Path(__file__).parents[1] / "worker" / "bundled" / "data" / "digits"
"""1797 handwritten digits of 8x8 pixels; they are part of the package."""

IDX_STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
"""MNIST's file names; Fashion-MNIST and others use them too."""

CIFAR_NAMES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
"""CIFAR-10's file names; the last is the test set (https://www.cs.toronto.edu/~kriz/cifar.html, binary version)."""
CIFAR_RECORD = 1 + 3 * 32 * 32
"""Bytes of one image: its class, then three planes of 32x32 pixels."""

SMALLEST_TEXT = 4096
"""Bytes; the last tenth of a text is the validation set, which needs one whole window."""

PARTS = ("train", "val")
"""The folders of an image data set in ImageNet's layout; each has one folder per class."""

_Missing = Callable[[str], UsageError]
"""Makes the error of a path, of what it lacks."""


def find_data(options: WorkerOptions) -> "list[Path] | None":
    """Return the files of a task's data, or the two folders of an image data set; the test set comes last.

    None for synthetic data, and for the user's own task, which finds its data. Raises UsageError when the data is
    missing, or the task does not use it.
    """
    task = "torchvision" if options.task.startswith("torchvision:") else options.task
    if task == "linear" and options.source != "synthetic":
        raise UsageError(
            f"--data {quote_value(options.data)} with --task linear, which makes its own data; leave it out"
        )
    if task not in _FINDERS or options.source == "synthetic":
        return None
    find, wanted = _FINDERS[task]
    if options.source is None:
        raise UsageError(f"--task {options.task} needs --data; give {wanted}, or type --data synthetic")
    path = DIGITS if (task, options.source) == ("mnist", "digits") else Path(options.source)
    other = "digits" if task == "mnist" else "synthetic"
    return find(
        path, lambda what: UsageError(f"--data {quote_value(str(path))} {what}; give {wanted}, or type --data {other}")
    )


def _find_idx(folder: Path, missing: _Missing) -> list[Path]:
    """Return the file for each of IDX_STEMS, plain or `.gz`."""
    if not folder.is_dir():
        raise UsageError(
            f"--data {quote_value(str(folder))} is not a folder; allowed are digits, synthetic, or a folder of IDX "
            "files"
        )
    found = []
    for stem in IDX_STEMS:
        present = [path for path in (folder / stem, folder / f"{stem}.gz") if path.is_file()]
        if not present:
            raise missing(f"has neither {stem} nor {stem}.gz")
        found.append(present[0])
    return found


def _find_cifar(folder: Path, missing: _Missing) -> list[Path]:
    """Return CIFAR_NAMES in a folder; raise UsageError for a file whose size is not a whole number of images."""
    for path in (paths := [folder / name for name in CIFAR_NAMES]):
        if not path.is_file():
            raise missing(f"has no {path.name}")
        size = path.stat().st_size
        if not size or size % CIFAR_RECORD:
            raise UsageError(
                f"{path} has {size} bytes, not a multiple of {CIFAR_RECORD} (one image); download it again"
            )
    return paths


def _find_text(path: Path, missing: _Missing) -> list[Path]:
    if not path.is_file():
        raise missing("is not a file")
    size = path.stat().st_size
    if size < SMALLEST_TEXT:
        raise UsageError(f"--data {quote_value(str(path))} has {size} bytes; at least {SMALLEST_TEXT} are needed")
    return [path]


def _find_parts(folder: Path, missing: _Missing) -> list[Path]:
    """Return the folders train and val; each must have a folder of a class."""
    for part in (parts := [folder / name for name in PARTS]):
        if not part.is_dir() or not any(entry.is_dir() for entry in part.iterdir()):
            raise missing(f"has no {part.name}/CLASS/ with images")
    return parts


_FINDERS: Final[Mapping[str, tuple[Callable[[Path, _Missing], list[Path]], str]]] = {
    "mnist": (_find_idx, "the folder of MNIST's four IDX files"),
    "cifar10": (_find_cifar, "the folder of CIFAR-10's binary version (cifar-10-batches-bin)"),
    "gpt": (_find_text, "a text file"),
    "torchvision": (_find_parts, "a folder with train/CLASS/ and val/CLASS/"),
}
"""By task: how its data is found, and what it must be."""
