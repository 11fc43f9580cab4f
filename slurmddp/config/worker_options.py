"""The options of the bundled worker: task, data and training. No torch: the command line checks them."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Optional

import msgspec

from slurmddp.config.option_types import Count, Given, Option, convert, fields_of, unknown, whole_text
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e9, description="a finite number above 0")]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1, description="a number from 0 to below 1")]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description=f"a whole number from 0 to {2**63 - 1}")]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9, description="a number of seconds above 0")]
Megabytes = Annotated[float, msgspec.Meta(gt=0, le=1e6, description="a number of megabytes above 0")]
Many = Annotated[int, msgspec.Meta(ge=0, description="a whole number, 0 or more")]

DATA_NAMES: Final = ("digits", "synthetic")
"""Names of data that are not a path."""
DEFAULT_DATA: Final = {"mnist": "digits", "linear": "synthetic"}
"""The data of tasks without --data; the other tasks need --data."""
BUNDLED: Final = ("linear", "mnist", "cifar10", "gpt")
TaskName = Annotated[
    str,
    whole_text(
        rf"{'|'.join(BUNDLED)}|[A-Za-z_][\w.]*:[A-Za-z_]\w*",
        f"one of {', '.join(BUNDLED)}, torchvision:MODEL, or package.module:Class",
    ),
]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One training by the bundled worker: the table `[worker]` of a job file, and the words after `--`."""

    task: Annotated[
        TaskName,
        Option(
            "What to train: linear, mnist, cifar10, gpt, torchvision:MODEL, or package.module:Class, your own.",
            metavar="NAME|MODULE:CLASS",
        ),
    ] = "mnist"
    data: Annotated[
        Optional[str],
        Option(
            "Training data: synthetic, a folder or a file; slurmddp includes mnist's digits "
            "[default: digits for mnist].",
            metavar="NAME|PATH",
        ),
    ] = None
    epochs: Annotated[Count, Option("Passes over the training data.")] = 10
    batch_size: Annotated[Count, Option("Samples of a rank in one batch.")] = 32
    accumulate: Annotated[Count, Option("Batches of a rank for one optimizer step.")] = 1
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], Option("Optimizer.")] = "sgd"
    momentum: Annotated[Share, Option("Momentum of sgd.")] = 0.9
    weight_decay: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=1e9, description="a finite number, 0 or more")], Option("Weight decay.")
    ] = 0.0
    lr: Annotated[Rate, Option("Learning rate.")] = 0.03
    lr_scaling: Annotated[
        Literal["none", "linear", "sqrt"],
        Option("How lr, which is for one rank's batch, grows with ranks times accumulate."),
    ] = "none"
    schedule: Annotated[
        Literal["constant", "linear", "cosine"], Option("Decay of the learning rate to 0 at the last step.")
    ] = "constant"
    warmup_steps: Annotated[Many, Option("Steps in which the learning rate rises from 0.")] = 0
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp64"],
        Option("fp32; bf16 and fp16: mixed, fp16 on a GPU only; fp64: double precision, for comparisons."),
    ] = "fp32"
    strategy: Annotated[Literal["ddp", "fsdp"], Option("ddp: DistributedDataParallel. fsdp: fully_shard.")] = "ddp"
    workers: Annotated[Many, Option("Loader processes of a rank, for data that is not in memory.")] = 0
    sync_bn: Annotated[bool, Option("Batch statistics over all ranks (on GPUs).")] = False
    compile: Annotated[bool, Option("Compile the model.")] = False
    channels_last: Annotated[bool, Option("Memory format channels-last for images and weights.")] = False
    bucket_mb: Annotated[Megabytes, Option("DDP: size of a gradient bucket.", metavar="MB")] = 25.0
    find_unused_parameters: Annotated[bool, Option("DDP: some steps do not use all parameters.")] = False
    checkpoint_every_steps: Annotated[
        Optional[Count], Option("Steps between checkpoints, in addition to the seconds.")
    ] = None
    checkpoint_every_s: Annotated[
        Seconds, Option("Seconds between checkpoints; further ones at a stop signal and at the end.")
    ] = 600
    keep_checkpoints: Annotated[Count, Option("How many of the newest checkpoints to keep.")] = 2
    log_every_s: Annotated[Seconds, Option("Seconds between metrics in the run's events; the first come sooner.")] = 10
    tensorboard: Annotated[bool, Option("Also write the metrics for TensorBoard.")] = False
    save_all_ranks: Annotated[bool, Option("At the end save every rank's model, for `slurmddp compare`.")] = False
    seed: Annotated[Seed, Option("Seed of the weights, the order of the data and synthetic data.")] = 0
    device: Annotated[Literal["auto", "cpu", "cuda"], Option("auto: CUDA when the machine has it, else CPU.")] = "auto"

    def __post_init__(self) -> None:
        """Check options that exclude each other. Raises UsageError."""
        for key in () if self.strategy == "ddp" else DDP_ONLY:
            if getattr(self, WORKER_FIELDS[key].name) != WORKER_FIELDS[key].default:
                raise UsageError(f"--{key} is for --strategy ddp, not for {self.strategy}; leave it out")
        if self.strategy == "fsdp" and self.precision == "fp16":
            raise UsageError("--precision fp16 is not for --strategy fsdp; give --precision bf16")
        if self.data == "":
            raise UsageError("--data: an empty text is not allowed; name the data, or leave the option out")
        if self.device == "cpu" and self.needs_gpu:
            raise UsageError(f"{self.needs_gpu}, and --device cpu was given")

    @property
    def needs_gpu(self) -> str:
        """Why a GPU is needed, and what to type instead; empty when none is needed."""
        return next((advice for name, value, advice in GPU_ONLY if getattr(self, name) == value), "")

    @property
    def is_own_task(self) -> bool:
        """Whether the task is the user's own class."""
        return self.task not in BUNDLED and not self.task.startswith("torchvision:")

    @property
    def source(self) -> "str | None":
        """The training data; None when --data is missing."""
        return self.data if self.data is not None else DEFAULT_DATA.get(self.task)


GPU_ONLY: Final = (
    ("precision", "fp16", "--precision fp16 needs GPUs (--precision bf16 does not)"),
    ("sync_bn", True, "--sync-bn needs GPUs, as torch's SyncBatchNorm does"),
)
DDP_ONLY: Final = ("bucket-mb", "find-unused-parameters", "sync-bn", "save-all-ranks")
"""Options for DistributedDataParallel only."""
WORKER_FIELDS: Final = fields_of(WorkerOptions)
_SPELLINGS: Final = {f"--{key}": (field, "true") for key, field in WORKER_FIELDS.items()} | {
    f"--no-{key}": (field, "false") for key, field in WORKER_FIELDS.items() if field.is_switch
}
"""The option of each spelling, and the value that it sets by that if it is a switch."""


def parse_words(words: Sequence[str], origin: str = "") -> dict[str, Given]:
    """Return the options in words as `--task mnist --epochs=5 --sync-bn`, by field; a later word beats an earlier one.

    Without an `origin` each option is its own. Raises UsageError for an unknown option, a missing value, or a value
    that is not allowed.
    """
    given: dict[str, Given] = {}
    rest = iter(words)
    for word in rest:
        name, equals, attached = word.partition("=")
        if name not in _SPELLINGS:
            raise _explain_unknown(name)
        field, switched = _SPELLINGS[name]
        value = attached if equals else switched if field.is_switch else next(rest, None)
        if value is None:
            raise UsageError(f"{name} needs a value: {field.expected}")
        if switched == "false" and equals:
            raise UsageError(f"{quote_value(word)}: {name} takes no value")
        given[field.name] = Given(convert(field, value, name), origin or f"--{field.key}")
    return given


def _explain_unknown(name: str) -> UsageError:
    if name in ("-h", "--help"):
        return UsageError(f"{name} is not an option of the bundled worker; slurmddp submit --help-worker shows them")
    return unknown(name, [f"--{known}" for known in WORKER_FIELDS], "the bundled worker", what="option")


def parse(words: Sequence[str]) -> WorkerOptions:
    """Return the options in the words. Raises UsageError as `parse_words` does."""
    return WorkerOptions(**{name: given.raw for name, given in parse_words(words).items()})


def arguments(options: WorkerOptions) -> list[str]:
    """Return the words of these options for `parse`: task, data, epochs, and the values that are not the default."""
    words = [f"--task={options.task}"]
    words += [] if options.source is None else [f"--data={options.source}"]
    words += [f"--epochs={options.epochs}"]
    for key, field in WORKER_FIELDS.items():
        value = getattr(options, field.name)
        if key not in ("task", "data", "epochs") and value != field.default:
            words.append(f"--{key}" if value is True else f"--{key}={value}")
    return words
