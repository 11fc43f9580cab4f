"""What the bundled worker can be asked for: tasks, data and options. No torch: the CLI reads this before the queue."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from slurmddp.errors import UsageError
from slurmddp.fields import Count, Option, convert, fields_of, shown, unknown
from slurmddp.worker.files import DIGITS, find_idx

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e9, description="a finite number above 0")]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description=f"a whole number from 0 to {2**63 - 1}")]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9, description="a number of seconds above 0")]


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
    lr: Annotated[Rate, Option(help="Learning rate.")] = 0.03
    checkpoint_every_steps: Annotated[Count | None, Option(help="Steps between checkpoints, besides the seconds.")] = (
        None
    )
    checkpoint_every_s: Annotated[
        Seconds, Option(help="Seconds between checkpoints; one more comes at a notice, and at the end.")
    ] = 600
    keep_checkpoints: Annotated[Count, Option(help="Checkpoints that stay, the newest.")] = 2
    seed: Annotated[Seed, Option(help="Of the weights, the data's order and synthetic data.")] = 0
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(help="auto: CUDA when the machine has it, else CPU.")] = (
        "auto"
    )


DATA_NAMES: Final = ("digits", "synthetic")
"""Data that is no folder."""

WORKER_FIELDS: Final = fields_of(WorkerOptions)
ALWAYS_WRITTEN: Final = ("task", "data", "epochs")


def words_given(words: Sequence[str]) -> dict[str, Any]:
    """Return the options that `--task mnist --epochs=5` spell, by key; the last of a repeated one counts.

    Raises UsageError in one line for an unknown option, a missing value, or a value that is not allowed.
    """
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, attached = word.partition("=")
        key = name.removeprefix("--")
        if key == name or key not in WORKER_FIELDS:
            raise unknown(name, [f"--{known}" for known in WORKER_FIELDS], "the bundled worker", what="option")
        value = attached if equals else next(rest, None)
        if value is None:
            raise UsageError(f"{name} needs a value: {WORKER_FIELDS[key].expected}")
        given[key] = convert(WORKER_FIELDS[key], value, name)
    return given


def parse(words: Sequence[str]) -> WorkerOptions:
    """Return the options that the words spell. Raises UsageError as `words_given` does."""
    return WorkerOptions(**{WORKER_FIELDS[key].name: value for key, value in words_given(words).items()})


def arguments(options: WorkerOptions) -> list[str]:
    """Return the words that `parse` reads these options from; defaults are left out, but for the task's own."""
    words = []
    for key, field in WORKER_FIELDS.items():
        value = getattr(options, field.name)
        if field.name in ALWAYS_WRITTEN or value != field.default:
            words.append(f"--{key}={value}")
    return words


def check(options: WorkerOptions) -> Path | None:
    """Return the folder of the data; None for data that is made up.

    Raises UsageError when the data is not there, or the task has no use for it.
    """
    if options.task == "linear":
        if options.data not in ("synthetic", WORKER_FIELDS["data"].default):
            raise UsageError(f"--data {shown(options.data)} with --task linear, which makes its own; leave it out")
        return None
    if options.data == "synthetic":
        return None
    folder = DIGITS if options.data == "digits" else Path(options.data)
    find_idx(folder)
    return folder
