"""Recipes: the options by which well-known training scripts resume. A script is recognised by its text."""

import glob
import re
from typing import Final

import msgspec

from slurmddp.config.command import Command
from slurmddp.config.job_files import read_named
from slurmddp.errors import UsageError


class Recipe(msgspec.Struct, frozen=True):
    """How one kind of script resumes."""

    name: str
    marks: tuple[str, ...]
    """Texts that such a script contains, all of them."""
    resume_args: str
    checkpoints: str
    """`{folder}` stands for the folder that the script saves to; not any more in the recipe of one COMMAND."""
    folder: str
    """The script's option for that folder."""
    default: str
    """The folder without that option."""


RECIPES: Final = (
    Recipe(
        name="nanoGPT",
        marks=("configurator.py", "init_from == 'resume'", "'ckpt.pt'"),
        resume_args="--init_from=resume",
        checkpoints="{folder}/ckpt.pt",
        folder="out_dir",
        default="out",
    ),
    Recipe(
        name="timm's train.py",
        marks=("CheckpointSaver", "'--resume'", "./output/train"),
        resume_args="--resume={checkpoint}",
        checkpoints="{folder}/*/last.pth.tar",
        folder="output",
        default="output/train",
    ),
    Recipe(
        name="a torchvision reference",
        marks=("utils.save_on_master", '"checkpoint.pth"', '"--resume"'),
        resume_args="--resume={checkpoint}",
        checkpoints="{folder}/checkpoint.pth",
        folder="output-dir",
        default=".",
    ),
    Recipe(
        name="an Accelerate example",
        marks=("accelerator.load_state(args.resume_from_checkpoint)", '"--checkpointing_steps"'),
        resume_args="--resume_from_checkpoint={checkpoint}",
        checkpoints="{folder}/*_[0-9]*",
        folder="output_dir",
        default=".",
    ),
    Recipe(
        name="an ignite example",
        marks=("idist.Parallel", "setup_common_training_handlers", 'config["resume_from"]'),
        resume_args="--resume_from={checkpoint}",
        checkpoints="{folder}/*/training_checkpoint_*.pt",
        folder="output_path",
        default="/tmp/output-cifar10",  # noqa: S108 - as the example has it
    ),
)
_RESUMES_BY_ITSELF: Final = ("slurmddp", "SLURMDDP_", "lightning", "Trainer")
"""Words of a script that slurmddp resumes, or that asks slurmddp."""


def find_recipe(command: Command) -> Recipe | None:
    """Return the recipe of COMMAND's script, with the checkpoints that it writes; None when it is not known."""
    text = _read(command.script or "")
    for recipe in RECIPES:
        if all(mark in text for mark in recipe.marks):
            folder = glob.escape(_find_folder(recipe, text, command.words))
            return msgspec.structs.replace(recipe, checkpoints=recipe.checkpoints.format(folder=folder))
    return None


def starts_anew(command: Command) -> bool:
    """Return whether the script of COMMAND is readable and has nothing that is known to resume."""
    text = _read(command.script or "")
    return bool(text) and not any(word in text for word in _RESUMES_BY_ITSELF)


def _find_folder(recipe: Recipe, text: str, words: tuple[str, ...]) -> str:
    """Return the folder that COMMAND saves to: by its option, else as a Python file of nanoGPT assigns it."""
    for index, word in reversed([*enumerate(words)]):
        name, equals, value = word.partition("=")
        if name == f"--{recipe.folder}":
            return value if equals else "".join(words[index + 1 : index + 2])
    texts = [text, *(_read(word) for word in words if not word.startswith("-"))]
    found = [
        match for one in texts for match in re.findall(rf"^{recipe.folder} *= *['\"](.+?)['\"]", one, re.MULTILINE)
    ]
    return found[-1] if found else recipe.default


def _read(path: str) -> str:
    try:
        return read_named(path, "COMMAND").decode(errors="replace") if path.endswith(".py") else ""
    except (UsageError, ValueError):  # a NUL in the path
        return ""
