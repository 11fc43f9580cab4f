"""Recipes: the options by which well-known training scripts resume. A script is recognised by its text.

The recipes are in recipes.json.
"""

import ast
import glob
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from slurmddp.config.command import Command
from slurmddp.config.job_files import read_named
from slurmddp.errors import UsageError


class Recipe(msgspec.Struct, frozen=True):
    """How one kind of script resumes."""

    name: str
    resume_args: str
    folder: str
    """The script's option for the folder that it saves to."""
    default: str
    """The folder without that option."""
    checkpoints: str
    """`{folder}` stands for that folder; not any more in the recipe of one COMMAND."""
    marks: tuple[str, ...]
    """Texts that such a script contains, all of them."""


_FILE: Final = Path(__file__).with_suffix(".json")
_RESUMES_BY_ITSELF: Final = ("slurmddp", "SLURMDDP_", "lightning", "Trainer")
"""Words of a script that slurmddp resumes, or that asks slurmddp."""
_FORMS_NO_GROUP: Final = {"torch", "torchvision", "torchaudio", "numpy", "pandas", "PIL", "matplotlib", "tqdm", "yaml"}
"""Packages that leave the process group to the script."""


@cache
def load_recipes() -> tuple[Recipe, ...]:
    """Return all recipes."""
    return msgspec.json.decode(_FILE.read_bytes(), type=tuple[Recipe, ...])


def find_recipe(command: Command) -> Recipe | None:
    """Return the recipe of COMMAND's script, with the checkpoints that it writes; None when it is not known."""
    text = _read(command.script or "")
    for recipe in load_recipes():
        if all(mark in text for mark in recipe.marks):
            folder = glob.escape(_find_folder(recipe, text, command.words))
            return msgspec.structs.replace(recipe, checkpoints=recipe.checkpoints.format(folder=folder))
    return None


def starts_anew(command: Command) -> bool:
    """Return whether the script of COMMAND is readable and has nothing that is known to resume."""
    text = _read(command.script or "")
    return bool(text) and not any(word in text for word in _RESUMES_BY_ITSELF)


def trains_alone(command: Command) -> bool:
    """Return whether the script of COMMAND trains with torch, and neither it nor what it imports joins the ranks."""
    text = _read(command.script or "")
    try:
        body = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError):  # for a newer Python than this one; a NUL
        return False
    names = {one.name.partition(".")[0] for line in body if isinstance(line, ast.Import) for one in line.names}
    names |= {(line.module or ".").partition(".")[0] for line in body if isinstance(line, ast.ImportFrom)}
    joins = names - sys.stdlib_module_names - _FORMS_NO_GROUP or re.search("distributed|RANK|PROCID|slurmddp", text)
    return "torch" in names and not joins


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
