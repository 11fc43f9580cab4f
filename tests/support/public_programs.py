"""Public training programs: where they are, and how two ranks without a GPU run them."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """One program. COMMAND is that of its own README, with smaller numbers."""

    name: str
    repository: str
    commit: str
    command: str
    step: str
    """Matches a line that is printed now and then; its group is the number of the step or the epoch."""
    result: str
    """Matches what two runs of the same training print alike."""
    stop_after: int
    """The step that has been printed when the job is stopped: it has saved by then."""
    folder: str = ""
    """Where COMMAND runs, below the sources."""
    prepare: Callable[[Path], None] = lambda _: None
    changes: tuple[tuple[str, str, str], ...] = ()
    """File, text, and what stands there instead: no GPU, no network, no hours; a number to compare."""
    options: tuple[str, ...] = ()
    """Of `slurmddp submit`."""
    saves: bool = True
    """Whether it has checkpoints of its own."""
    ranks: int = 2
    """On two nodes."""


def check_out(program: Program, sources: Path) -> Path:
    """Fetch the program's repository into `sources`, make the changes and the data; return the folder to work in."""
    for words in (
        ["init", "--quiet"],
        ["remote", "add", "origin", program.repository],
        ["sparse-checkout", "set", "--no-cone", f"/{program.folder or '*'}"],
        ["fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", program.commit],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *words], cwd=sources, check=True)
    folder = sources / program.folder
    for file, text, instead in program.changes:
        old = (folder / file).read_text()
        assert text in old, f"{program.name}: {file} has no {text!r}"
        (folder / file).write_text(old.replace(text, instead))
    program.prepare(folder)
    return folder


def _write_own_text(folder: Path) -> None:
    """Write a text of 400,000 characters for nanoGPT, of its own sources, and have it encoded by its own program."""
    data = folder / "data" / "shakespeare_char"
    text = "".join(path.read_text() for path in sorted(folder.glob("*.py")))
    (data / "input.txt").write_text((text * 20)[:400_000])
    subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True, capture_output=True)


def _draw_classes(folder: Path, count: int = 64) -> None:
    """Write `count` pictures of 32 x 32 points for each of two classes, in training and validation."""
    from PIL import Image  # noqa: PLC0415 only these programs need it

    chance = random.Random(1)  # noqa: S311 the same pictures each time
    for part in ("train", "val"):
        for label in (0, 1):
            place = folder / "pictures" / part / f"class{label}"
            place.mkdir(parents=True)
            for index in range(count):
                picture = Image.new("RGB", (32, 32))
                picture.putdata([(chance.randrange(256), 200 * label, chance.randrange(256)) for _ in range(32 * 32)])
                picture.save(place / f"class{label}_{index}.jpg")


def _draw_flat(folder: Path) -> None:
    _draw_classes(folder, 80)
    for path in [*folder.glob("pictures/train/*/*.jpg")]:
        shutil.move(path, folder / "pictures" / path.name)


_EXAMPLES = ("https://github.com/pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")

PROGRAMS = (
    Program(
        "nanoGPT",
        "https://github.com/karpathy/nanoGPT",
        "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
        "train.py config/train_shakespeare_char.py --device=cpu --dtype=float32 --compile=False --backend=gloo "
        "--eval_interval=10 --eval_iters=1 --log_interval=1 --block_size=32 --batch_size=4 --n_layer=2 --n_head=2 "
        "--n_embd=32 --max_iters=400 --lr_decay_iters=400 --dropout=0.0 --gradient_accumulation_steps=2 "
        "--always_save_checkpoint=True",
        r"iter (\d+): loss",
        r"iter 400: loss (\S+),",
        40,
        prepare=_write_own_text,
        changes=(
            ("train.py", "device = f'cuda:{ddp_local_rank}'\n    torch.cuda.set_device(device)", "device = 'cpu'"),
            ("train.py", "DDP(model, device_ids=[ddp_local_rank])", "DDP(model)"),
        ),
    ),
    Program(
        "timm",
        "https://github.com/huggingface/pytorch-image-models",
        "aa4b5850c1543fa488abf260f18390eda46cf85d",
        "train.py --data-dir pictures --train-split train --val-split val --model test_resnet --num-classes 2 "
        "--device cpu --img-size 32 --batch-size 8 --workers 1 --epochs 12 --log-interval 1 --opt sgd --lr 0.01 "
        "--output out --experiment run --no-prefetcher",
        r"Train: (\d+) \[",
        r"Train: 11 \[ +\d+/\d+ \(100%\)\] +Loss: (\S+)",
        3,
        prepare=_draw_classes,
        changes=(("timm/task/classification.py", "device_ids=device_ids", "device_ids=None"),),
    ),
    Program(
        "ignite, examples/cifar10",
        "https://github.com/pytorch/ignite",
        "de08e799cfb55a6cf4aa778575d6bad725385453",
        "main.py run --backend=gloo --output_path=out --model=resnet18 --batch_size=16 --num_workers=0 --num_epochs=12 "
        "--num_warmup_epochs=1 --validate_every=1 --checkpoint_every=4 --learning_rate=0.01 --log_every_iters=1",
        r"Epoch\[(\d+)\] - Evaluation time",
        r"Epoch\[12\] - Evaluation time .*\n - Test metrics:\n\s+Accuracy: \S+\n\s+Loss: (\S+)",
        3,
        folder="examples/cifar10",
        changes=(
            ("utils.py", "CIFAR10(root=path, train=True, download=download,", "FakeData(64, (3, 32, 32), 10,"),
            ("utils.py", "CIFAR10(root=path, train=False, download=False,", "FakeData(64, (3, 32, 32), 10,"),
        ),
    ),
    Program(
        "Accelerate, complete_cv_example.py",
        "https://github.com/huggingface/accelerate",
        "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83",
        "complete_cv_example.py --data_dir pictures --cpu --checkpointing_steps epoch --output_dir out",
        r"epoch (\d+): ",
        r"epoch 11: (\S+)",
        2,
        folder="examples",
        prepare=_draw_flat,
        changes=(
            ("complete_cv_example.py", '"resnet50d", pretrained=True', '"test_resnet", pretrained=False'),
            ("complete_cv_example.py", '"num_epochs": 3', '"num_epochs": 12'),
            ("complete_cv_example.py", '"batch_size": 64, "image_size": 224', '"batch_size": 8, "image_size": 32'),
            ("complete_cv_example.py", "num_workers=4", "num_workers=0"),
        ),
    ),
    Program(
        "pytorch/examples, minGPT-ddp",
        *_EXAMPLES,
        "main.py data_config.path=data/input.txt data_config.truncate=0.005 data_config.block_size=32 "
        "gpt_config.n_layer=2 gpt_config.n_head=2 gpt_config.n_embd=32 trainer_config.batch_size=64 "
        "trainer_config.max_epochs=12 trainer_config.save_every=1 trainer_config.use_amp=False "
        "trainer_config.data_loader_workers=0",
        r"Epoch (\d+) \| Iter 0 \| Train",
        r"\[RANK0\] Epoch 12 \| Iter 0 \| Eval Loss (\S+)",
        4,
        folder="distributed/minGPT-ddp/mingpt",
        changes=(
            ("main.py", "if not verify_min_gpu_count(min_gpus=_min_gpu_count):", "if False:"),
            ("main.py", "    acc = torch.accelerator.current_accelerator()\n", ""),
            ("main.py", 'torch.device(f"{acc}:{rank}")', 'torch.device("cpu")'),
            ("main.py", "    torch.accelerator.set_device_index(rank)\n", "    torch.manual_seed(1)\n"),
            ("trainer.py", 'torch.device(f"{self.acc}:{self.local_rank}")', 'torch.device("cpu")'),
            ("trainer.py", "model.to(self.local_rank)", "model"),
            ("trainer.py", "DDP(self.model, device_ids=[self.local_rank])", "DDP(self.model)"),
            ("trainer.py", "source.to(self.local_rank)", "source"),
            ("trainer.py", "targets.to(self.local_rank)", "targets"),
            ("trainer.py", "import boto3\n", ""),
        ),
    ),
    Program(
        "DeepSpeed, cifar10_deepspeed.py with ZeRO 2",
        "https://github.com/deepspeedai/DeepSpeedExamples",
        "45b4b7156c8794a3452a5a7d03dbd8d797068569",
        "cifar10_deepspeed.py --deepspeed --stage=2 --dtype=bf16 --epochs=12 --log-interval=1",
        r"\[ (\d+),     1\] loss",
        r"\[ 12,     2\] loss: +(\S+)",
        3,
        folder="training/cifar",
        changes=(
            (
                "cifar10_deepspeed.py",
                "torchvision.datasets.CIFAR10(",
                "torchvision.datasets.FakeData(64, (3, 32, 32), 10,",
            ),
            ("cifar10_deepspeed.py", 'root="./data", train=True, download=True, ', ""),
            ("cifar10_deepspeed.py", 'root="./data", train=False, download=True, ', ""),
            (
                "cifar10_deepspeed.py",
                "deepspeed.init_distributed()",
                "deepspeed.init_distributed(), torch.manual_seed(1)",
            ),
        ),
        saves=False,
    ),
    Program(
        "pytorch/examples, ddp-tutorial-series/multinode.py",
        *_EXAMPLES,
        "multinode.py 120 1 --batch_size 16",
        r"Epoch (\d+) \| Batchsize",
        r"\b0 loss (\S+)",
        8,
        folder="distributed/ddp-tutorial-series",
        changes=(
            ("multinode.py", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', "torch.manual_seed(1)"),
            ("multinode.py", 'backend="nccl"', 'backend="gloo"'),
            ("multinode.py", "model.to(self.local_rank)", "model"),
            ("multinode.py", "source.to(self.local_rank)", "source"),
            ("multinode.py", "targets.to(self.local_rank)", "targets"),
            ("multinode.py", ", device_ids=[self.local_rank]", ""),
            ("multinode.py", 'f"cuda:{self.local_rank}"', '"cpu"'),
            ("multinode.py", "F.cross_entropy", "F.mse_loss"),  # of one class it is always 0
            (
                "multinode.py",
                "loss.backward()\n",
                "loss.backward()\n        print(self.global_rank, 'loss', loss.item())\n",
            ),
        ),
    ),
    Program(
        "pytorch/examples, FSDP2, saved every 20 steps",
        *_EXAMPLES,
        "example.py",
        r"step (\d+) loss",
        r"step 199 loss (\S+)",
        45,
        folder="distributed/FSDP2",
        changes=(
            ("example.py", "if not verify_min_gpu_count(min_gpus=_min_gpu_count):", "if False:"),
            ("example.py", ", device_id=device", ""),
            (  # which it leaves as the memory was
                "model.py",
                "        self.output.reset_parameters()\n",
                (
                    "        self.output.reset_parameters()\n"
                    "        for module in self.layers.modules():\n"
                    "            getattr(module, 'reset_parameters', int)()\n"
                ),
            ),
            ("example.py", "batch_size = 32", "batch_size = 4"),
            ("example.py", "n_layers=10", "n_layers=2"),
            (
                "example.py",
                "    for _ in range(10):\n",
                (
                    "    done = max((int(one['step']) for one in optim.state.values()), default=0)\n"
                    "    for step in range(done, 200):\n"
                ),
            ),
            (
                "example.py",
                "        optim.zero_grad()\n",
                (
                    "        optim.zero_grad()\n"
                    "        print('step', step, 'loss', loss.item())\n"
                    "        if step % 20 == 19:\n"
                    "            checkpointer.save(model, optim)\n"
                ),
            ),
        ),
    ),
    Program(
        "pytorch/examples, tensor_parallel_example.py",
        *_EXAMPLES,
        "tensor_parallel_example.py",
        r"iter (\d+) completed",
        r"iter 599 completed (\S+)",
        50,
        folder="distributed/tensor_parallelism",
        changes=(
            ("log_utils.py", "return has_gpu and gpu_count >= min_gpus", "return True"),
            ("log_utils.py", "logger.info(", "print("),
            ("log_utils.py", "import torch\n", "import torch\n\ntorch.manual_seed(1)\n"),
            ("tensor_parallel_example.py", "torch.accelerator.current_accelerator().type", '"cpu"'),
            ("tensor_parallel_example.py", "num_iters = 10", "num_iters = 600"),
            ("tensor_parallel_example.py", "{i} completed", "{i} completed {output.sum().item()}"),
        ),
        saves=False,
    ),
    Program(
        "pytorch/examples, fsdp_tp_example.py with 4 ranks",
        *_EXAMPLES,
        "fsdp_tp_example.py",
        r"iter (\d+) complete",
        r"iter 59 complete (\S+)",
        5,
        folder="distributed/tensor_parallelism",
        changes=(
            ("log_utils.py", "return has_gpu and gpu_count >= min_gpus", "return True"),
            ("log_utils.py", "logger.info(", "print("),
            ("log_utils.py", "import torch\n", "import torch\n\ntorch.manual_seed(1)\n"),
            ("fsdp_tp_example.py", "torch.accelerator.current_accelerator().type", '"cpu"'),
            (  # which torch cannot shard without a GPU
                "llama2_model.py",
                "F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)",
                (
                    "xq.from_local(F.scaled_dot_product_attention(xq.to_local(), xk.to_local(), xv.to_local(), "
                    "is_causal=True), xq.device_mesh, xq.placements)"
                ),
            ),
            ("fsdp_tp_example.py", "vocab_size=32000", "vocab_size=1000"),
            ("fsdp_tp_example.py", "torch.randint(32000, (8, 256)", "torch.randint(1000, (2, 32)"),
            ("fsdp_tp_example.py", "num_iterations = 10", "num_iterations = 60"),
            ("fsdp_tp_example.py", "{i} complete", "{i} complete {output.sum().item()}"),
        ),
        ranks=4,
        saves=False,
    ),
    Program(
        "pytorch/examples, imagenet/main.py",
        *_EXAMPLES,
        "main.py --dummy --no-accel --dist-url env:// --dist-backend gloo --arch squeezenet1_1 --seed 1 --workers 0 "
        "--batch-size 8 --lr 0.01 --print-freq 1 --epochs 12",
        r"\b0 Epoch: \[(\d+)\]\[1/",
        r"\b0 Epoch: \[11\]\[8/8\].*Loss (\S+)",
        3,
        folder="imagenet",
        changes=(
            (
                "main.py",
                "print('using CPU, this will be slow')",
                "model = torch.nn.parallel.DistributedDataParallel(model)",
            ),
            ("main.py", '"Epoch: [{}]".format(epoch)', '"{} Epoch: [{}]".format(args.rank, epoch)'),
            ("main.py", "FakeData(1281167, (3, 224, 224)", "FakeData(128, (3, 64, 64)"),
            ("main.py", "FakeData(50000, (3, 224, 224)", "FakeData(32, (3, 64, 64)"),
        ),
        options=("--resume-args=--resume={checkpoint}", "--checkpoints=checkpoint.pth.tar"),
    ),
)


def steps(program: Program, output: str) -> list[int]:
    """Return the numbers of the steps, in the order in which they were printed."""
    return [int(number) for number in re.findall(program.step, output)]


def result(program: Program, output: str) -> str:
    """Return what the last run printed as its result."""
    found = re.findall(program.result, output)
    assert found, output[-3000:]
    return found[-1]
