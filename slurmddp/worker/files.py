"""Finds the files of a data set. No torch: the CLI looks before the queue."""

from pathlib import Path

from slurmddp.errors import UsageError
from slurmddp.fields import shown
from slurmddp.worker.options import WorkerOptions

DIGITS = Path(__file__).parent / "data" / "digits"
"""1797 handwritten digits of 8x8 pixels; they travel with the package."""

IDX_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""MNIST's names; Fashion-MNIST and others use them too."""


def check(options: WorkerOptions) -> Path | None:
    """Return where the data of a bundled task is; None for data that is made up.

    Raises UsageError when the data is not there, or the task has no use for it.
    """
    if options.task == "linear":
        if options.source != "synthetic":
            raise UsageError(f"--data {shown(options.data)} with --task linear, which makes its own; leave it out")
        return None
    if options.source is None or options.source == "synthetic":
        return None
    folder = DIGITS if options.source == "digits" else Path(options.source)
    find_idx(folder)
    return folder


def find_idx(folder: Path) -> dict[str, Path]:
    """Return the file for each of IDX_STEMS, plain or `.gz`.

    Raises UsageError that names the folder and the missing file.
    """
    if not folder.is_dir():
        raise UsageError(
            f"--data {shown(str(folder))} is no folder; allowed are digits, synthetic, or a folder of IDX files"
        )
    return {stem: _find(folder, stem) for stem in IDX_STEMS}


def _find(folder: Path, stem: str) -> Path:
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    raise UsageError(
        f"--data {shown(str(folder))} holds no {stem} and no {stem}.gz; put MNIST's four IDX files there, "
        "or type --data digits"
    )
