"""What the bundled worker can be asked for: tasks, data and options. No torch: the CLI reads this before the queue."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from slurmddp.config.options import Count, Option, convert, fields_of, unknown
from slurmddp.errors import UsageError
from slurmddp.text import shown

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e9, description="a finite number above 0")]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1, description="a number from 0 to below 1")]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description=f"a whole number from 0 to {2**63 - 1}")]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9, description="a number of seconds above 0")]
Megabytes = Annotated[float, msgspec.Meta(gt=0, le=1e6, description="a number of megabytes above 0")]
Many = Annotated[int, msgspec.Meta(ge=0, description="a whole number, 0 or more")]

DATA_NAMES: Final = ("digits", "synthetic")
"""Data that is neither a folder nor a file."""
DEFAULT_DATA: Final = {"mnist": "digits", "linear": "synthetic"}
"""What the bundled tasks train on when no data is named; the others need a name."""
BUNDLED: Final = ("linear", "mnist", "cifar10", "gpt")
TaskName = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({'|'.join(BUNDLED)}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)\Z",
        description=f"one of {', '.join(BUNDLED)}, torchvision:MODEL, or package.module:Class",
    ),
]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One training by the bundled worker; the table `[worker]` of a job file and the words after `--`."""

    task: Annotated[
        TaskName,
        Option(
            help="What to train: linear, mnist, cifar10, gpt, torchvision:MODEL, or package.module:Class, your own.",
            metavar="NAME|MODULE:CLASS",
        ),
    ] = "mnist"
    data: Annotated[
        str | None,
        Option(
            help="What to train on: synthetic, a folder or a file; mnist's digits travel with slurmddp "
            "[default: digits for mnist].",
            metavar="NAME|PATH",
        ),
    ] = None
    epochs: Annotated[Count, Option(help="Passes over the training data.")] = 10
    batch_size: Annotated[Count, Option(help="Samples a rank takes at once.")] = 32
    accumulate: Annotated[Count, Option(help="Batches of a rank whose gradients make one step.")] = 1
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], Option(help="Optimizer.")] = "sgd"
    momentum: Annotated[Share, Option(help="Of sgd.")] = 0.9
    weight_decay: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=1e9, description="a finite number, 0 or more")],
        Option(help="Weight decay."),
    ] = 0.0
    lr: Annotated[Rate, Option(help="Learning rate.")] = 0.03
    lr_scaling: Annotated[
        Literal["none", "linear", "sqrt"],
        Option(help="How lr, given for one rank's batch, grows with ranks times accumulate."),
    ] = "none"
    schedule: Annotated[
        Literal["constant", "linear", "cosine"], Option(help="How the learning rate falls to 0 by the last step.")
    ] = "constant"
    warmup_steps: Annotated[Many, Option(help="Steps in which the learning rate rises from 0.")] = 0
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp64"],
        Option(help="fp32; bf16 and fp16: mixed, fp16 on a GPU only; fp64: everything in double, for comparisons."),
    ] = "fp32"
    strategy: Annotated[
        Literal["ddp", "fsdp", "dp"],
        Option(help="ddp: DistributedDataParallel. fsdp: fully_shard. dp: DataParallel, one process, as a baseline."),
    ] = "ddp"
    workers: Annotated[Many, Option(help="Loader processes of a rank, for data that is not held in memory.")] = 0
    sync_bn: Annotated[bool, Option(help="Batch statistics over all ranks (on GPUs).")] = False
    compile: Annotated[bool, Option(help="Compile the model.")] = False
    channels_last: Annotated[bool, Option(help="Images and weights with channels last.")] = False
    bucket_mb: Annotated[Megabytes, Option(help="DDP: size of a gradient bucket.", metavar="MB")] = 25.0
    gradient_as_bucket_view: Annotated[bool, Option(help="DDP: gradients are views of the buckets.")] = False
    static_graph: Annotated[bool, Option(help="DDP: the same parameters take part in every step.")] = False
    find_unused_parameters: Annotated[bool, Option(help="DDP: some parameters take no part in some steps.")] = False
    comm_hook: Annotated[
        Literal["none", "fp16", "bf16", "powersgd"], Option(help="DDP: how gradients are compressed on their way.")
    ] = "none"
    zero: Annotated[bool, Option(help="DDP: each rank holds its share of the optimizer's state (ZeRO-1).")] = False
    checkpoint_every_steps: Annotated[Count | None, Option(help="Steps between checkpoints, besides the seconds.")] = (
        None
    )
    checkpoint_every_s: Annotated[
        Seconds, Option(help="Seconds between checkpoints; one more comes at a notice, and at the end.")
    ] = 600
    keep_checkpoints: Annotated[Count, Option(help="Checkpoints that stay, the newest.")] = 2
    log_every_s: Annotated[
        Seconds, Option(help="Seconds between two lines of metrics in the run's events; the first come sooner.")
    ] = 10
    tensorboard: Annotated[bool, Option(help="Write the metrics for TensorBoard, too.")] = False
    save_all_ranks: Annotated[bool, Option(help="At the end save every rank's model, for `slurmddp compare`.")] = False
    seed: Annotated[Seed, Option(help="Of the weights, the data's order and synthetic data.")] = 0
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(help="auto: CUDA when the machine has it, else CPU.")] = (
        "auto"
    )

    def __post_init__(self) -> None:
        """Refuse what excludes each other; raises UsageError."""
        self._check_strategy()
        if self.data == "":
            raise UsageError("--data: an empty text is not allowed; name the data, or leave the option out")
        if self.static_graph and self.accumulate > 1:
            raise UsageError("--static-graph and --accumulate exclude each other in torch; leave one of them out")
        if self.device == "cpu" and self.needs_gpu:
            raise UsageError(f"{self.needs_gpu}, and --device cpu was given")

    def _check_strategy(self) -> None:
        if self.strategy == "ddp":
            return
        for key in DDP_ONLY:
            if getattr(self, WORKER_FIELDS[key].name) != WORKER_FIELDS[key].default:
                raise UsageError(f"--{key} is for --strategy ddp, not for {self.strategy}; leave it out")
        if self.strategy == "fsdp" and self.precision == "fp16":
            raise UsageError("--precision fp16 is not for --strategy fsdp; give --precision bf16")

    @property
    def needs_gpu(self) -> str:
        """What torch has for GPUs alone, and what to type without one; empty when nothing of it was asked for."""
        return next((advice for name, value, advice in GPU_ONLY if getattr(self, name) == value), "")

    @property
    def is_own_task(self) -> bool:
        """Whether the task is a class of the user's."""
        return self.task not in BUNDLED and not self.task.startswith("torchvision:")

    @property
    def source(self) -> str | None:
        """What to train on; None where the task needs a name and none was given."""
        return self.data if self.data is not None else DEFAULT_DATA.get(self.task)


GPU_ONLY: Final = (
    ("precision", "fp16", "--precision fp16 needs GPUs (--precision bf16 does not)"),
    ("sync_bn", True, "--sync-bn needs GPUs, as torch's SyncBatchNorm does"),
    ("comm_hook", "bf16", "--comm-hook bf16 needs GPUs (--comm-hook fp16 does not)"),
)
DDP_ONLY: Final = (
    *("bucket-mb", "gradient-as-bucket-view", "static-graph", "find-unused-parameters"),
    *("comm-hook", "zero", "sync-bn", "save-all-ranks"),
)
"""Options that have a meaning with DistributedDataParallel alone."""
WORKER_FIELDS: Final = fields_of(WorkerOptions)


def words_given(words: Sequence[str]) -> dict[str, Any]:
    """Return the options that `--task mnist --epochs=5 --sync-bn` spell, by key; the last of a repeated one counts.

    Raises UsageError in one line for an unknown option, a missing value, or a value that is not allowed.
    """
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, attached = word.partition("=")
        key, switched = _key_of(name)
        field = WORKER_FIELDS[key]
        value = attached if equals else switched if field.is_switch else next(rest, None)
        if value is None:
            raise UsageError(f"{name} needs a value: {field.expected}")
        if name.startswith("--no-") and equals:
            raise UsageError(f"{shown(word)}: {name} takes no value")
        given[key] = convert(field, value, name)
    return given


def _key_of(name: str) -> tuple[str, str]:
    """Return the option that a word names, and what it says when it is a switch."""
    if name.startswith("--"):
        key = name[2:]
        if key in WORKER_FIELDS:
            return key, "true"
        opposite = key.removeprefix("no-")
        if opposite != key and opposite in WORKER_FIELDS and WORKER_FIELDS[opposite].is_switch:
            return opposite, "false"
    raise unknown(name, [f"--{known}" for known in WORKER_FIELDS], "the bundled worker", what="option")


def parse(words: Sequence[str]) -> WorkerOptions:
    """Return the options that the words spell. Raises UsageError as `words_given` does."""
    return WorkerOptions(**{WORKER_FIELDS[key].name: value for key, value in words_given(words).items()})


def arguments(options: WorkerOptions) -> list[str]:
    """Return the words that `parse` reads these options from: task, data and epochs, and what is not default."""
    words = [f"--task={options.task}"]
    words += [] if options.source is None else [f"--data={options.source}"]
    words += [f"--epochs={options.epochs}"]
    for key, field in WORKER_FIELDS.items():
        value = getattr(options, field.name)
        if key not in ("task", "data", "epochs") and value != field.default:
            words.append(f"--{key}" if value is True else f"--{key}={value}")
    return words
