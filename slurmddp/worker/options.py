"""What the bundled worker can be asked for: tasks, data and options. No torch: the CLI reads this before the queue."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from slurmddp.errors import UsageError
from slurmddp.fields import Count, Natural, Option, convert, fields_of, shown, unknown

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6, description="a number above 0")]

DIGITS: Final = Path(__file__).parent / "data" / "digits"
IDX_FILES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""The four files of an IDX data set, as MNIST named them; each may end in .gz."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One training by the bundled worker; the table `[worker]` of a job file and the words after `--`."""

    task: Annotated[Literal["mnist", "linear"], Option(help="What to train.")] = "mnist"
    data: Annotated[
        str,
        Option(
            help="digits (travels with slurmddp), synthetic, or a folder of IDX files (MNIST, Fashion-MNIST).",
            metavar="NAME|DIR",
        ),
    ] = "digits"
    epochs: Annotated[Count, Option(help="Passes over the training data.")] = 10
    batch_size: Annotated[Count, Option(help="Samples a rank takes in a step.")] = 32
    lr: Annotated[Rate, Option(help="Learning rate.")] = 0.05
    seed: Annotated[Natural, Option(help="Of the weights, the data's order and synthetic data.")] = 0
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(help="auto: CUDA when the machine has it, else CPU.")] = (
        "auto"
    )


WORKER_FIELDS: Final = fields_of(WorkerOptions)
_ALWAYS_SHOWN: Final = ("task", "data", "epochs")


def words_given(words: Sequence[str]) -> dict[str, Any]:
    """Return the options among words like `--task mnist --epochs=5`, by key.

    Raises UsageError for a word that is no option, an option without its value, and a value that is not allowed.
    """
    given: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        key = name.removeprefix("--")
        if name == key or key not in WORKER_FIELDS:
            raise unknown(word, [f"--{known}" for known in WORKER_FIELDS], "the bundled worker", what="option")
        if not equals and not rest:
            raise UsageError(f"{name} needs a value: {WORKER_FIELDS[key].expected}")
        given[key] = convert(WORKER_FIELDS[key], value if equals else rest.pop(0), name)
    return given


def parse(words: Sequence[str]) -> WorkerOptions:
    """Return the options that the words ask for. Raises UsageError as `words_given` does."""
    return WorkerOptions(**{WORKER_FIELDS[key].name: value for key, value in words_given(words).items()})


def arguments(options: WorkerOptions) -> list[str]:
    """Return words that `parse` reads as these options; what a reader wants to know is always among them."""
    words = []
    for key, field in WORKER_FIELDS.items():
        value = getattr(options, field.name)
        if key in _ALWAYS_SHOWN or value != field.default:
            words += [f"--{key}", str(value)]
    return words


def check(options: WorkerOptions) -> None:
    """Raise UsageError when the data that the options name is not to be found from here."""
    folder = data_folder(options)
    if options.task == "linear" and folder != DIGITS and options.data != "synthetic":
        raise UsageError(f"--data {shown(options.data)}: task linear makes its own data; leave --data out")
    if folder is None:
        return
    if not folder.is_dir():
        raise UsageError(
            f"--data {shown(options.data)}: there is no such folder; give digits, synthetic, or a folder of IDX files"
        )
    for name in IDX_FILES:
        if not any((folder / f"{name}{end}").is_file() for end in ("", ".gz")):
            raise UsageError(
                f"--data {shown(options.data)}: the folder has no {name} or {name}.gz; put the four IDX files there"
            )


def data_folder(options: WorkerOptions) -> Path | None:
    """Return the folder of the data's IDX files; None for synthetic data."""
    if options.data == "synthetic":
        return None
    return DIGITS if options.data == "digits" else Path(options.data)
