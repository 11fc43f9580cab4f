"""What the bundled worker can be asked for: tasks, data and options. No torch: the CLI reads this before the queue."""

from typing import Annotated, Literal

import msgspec

from slurmddp.fields import Count, Natural, Option

Rate = Annotated[float, msgspec.Meta(gt=0, description="a number above 0")]


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
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Option(help="auto: CUDA when the machine has it, else CPU.")
    ] = "auto"
