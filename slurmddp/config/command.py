"""COMMAND: reads the words that users type, and returns the form that the worker takes. No I/O."""

import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_TORCHRUN = "torchrun"
_ACCELERATE = "accelerate"
_RUNNERS = rf"(.*/)?(python(3(\.\d+)?)?|{_TORCHRUN})"
_NAME_LENGTH: Final = 64

_LAUNCHERS: Final = {
    _TORCHRUN: "",
    _ACCELERATE: "; without --no-python, accelerate launch is understood",
    "deepspeed": "; it gets LOCAL_RANK as a variable, and no --local_rank",
    "composer": "",
    "srun": "",
    "mpirun": "",
}
"""Programs that start ranks, each with what else the user must know."""
_LAUNCHER_MODULES: Final = {
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": "deepspeed",
    "composer.cli.launcher": "composer",
}
_SHAPE: Final = {
    **dict.fromkeys(("nnodes", "num-machines", "num-nodes", "nodes", "N"), "nodes"),
    **dict.fromkeys(("nproc-per-node", "nproc", "num-gpus", "ntasks-per-node"), "ntasks-per-node"),
    "num-processes": "",
}
"""Our options, by the names that launchers have for them; the number of all ranks has none."""

_TOTAL: Final = ("num-processes", "np", "n", "ntasks")
"""Options of launchers for the number of all ranks."""
_RENDEZVOUS: Final = {
    **dict.fromkeys(("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "master-addr", "master-port"), True),
    **dict.fromkeys(("node-rank", "machine-rank", "main-process-ip", "main-process-port", "local-addr"), True),
    "standalone": False,
}
"""Options of launchers that say where ranks meet, which is slurmddp's work; and whether a value follows them."""
_OF_ACCELERATE: Final = ("config-file", "mixed-precision", "multi-gpu")

ACCELERATE_LAUNCH: Final = ("-m", "accelerate.commands.launch")
"""The first words of a COMMAND that was typed as `accelerate launch`; the worker does its work in each rank."""
NO_PYTHON: Final = "--no-python"
"""The worker's option for a COMMAND that is an executable."""


class Launch(NamedTuple):
    """What a line that begins with a launcher asks for."""

    name: str
    command: tuple[str, ...]
    """COMMAND without the options that are read here."""
    nodes: int | None
    ranks_per_node: int | None
    """None where the launcher was to choose."""
    left_out: tuple[str, ...]
    """Options that have no meaning here."""


def read_launch(words: tuple[str, ...]) -> Launch | None:
    """Return what a launcher line asks for; None for another COMMAND, and for one that has an unknown option."""
    name, rest = _split_launcher(words)
    place = _program_place(rest)
    if not name or place is None or (name in (_TORCHRUN, _ACCELERATE) and not place):
        return None
    numbers: dict[str, str] = {}
    kept: list[str] = []
    left_out: list[str] = []
    options = list(rest[:place])
    while options:
        word = options.pop(0)
        key, equals, value = word.partition("=")
        key = key.lstrip("-").replace("_", "-")
        takes_value = key in _SHAPE or key in _TOTAL or _RENDEZVOUS.get(key, False)
        if takes_value and not equals:
            value = options.pop(0) if options else ""
        if key in _TOTAL or key in _SHAPE:
            numbers[_SHAPE.get(key) or "ranks"] = value
        elif key in _RENDEZVOUS:
            left_out.append(f"--{key}")
        elif name == _ACCELERATE:
            kept.append(word)
        elif not (name in ("srun", "mpirun") and not options and re.fullmatch(_RUNNERS, word)):
            return None
    if name == _ACCELERATE and not (numbers or left_out):
        return None
    shape = _shape(numbers)
    program = _program_in(rest)
    command = (_ACCELERATE, "launch", *kept, *rest[place:]) if name == _ACCELERATE else program
    return shape and Launch(name, command, *shape, tuple(left_out))


def _shape(numbers: Mapping[str, str]) -> tuple[int | None, int | None] | None:
    """Return the numbers of nodes and of ranks on each; None where they are not whole numbers that fit."""
    given = {key: int(value) for key, value in numbers.items() if value.isdecimal() and value.isascii()}
    if any(value not in ("auto", "gpu") for key, value in numbers.items() if not given.get(key)):
        return None
    nodes, each, ranks = given.get("nodes"), given.get("ntasks-per-node"), given.get("ranks")
    if ranks is not None and ranks % (nodes or 1):
        return None
    return nodes, each if ranks is None else ranks // (nodes or 1)


def explain_option(name: str) -> str:
    """Return what to do instead of an option of torchrun or accelerate launch; empty for another option."""
    key = name.lstrip("-").replace("_", "-")
    if key in _RENDEZVOUS:
        return "it is an option of torchrun or accelerate, and slurmddp sets the rendezvous itself; leave it out"
    if key in _SHAPE:
        return f"use --{_SHAPE[key] or 'nodes and --ntasks-per-node'}"
    if key in _OF_ACCELERATE:
        return f"it is an option of accelerate; leave it out, or type: accelerate launch {name} ... train.py"
    return ""


def normalise(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove a leading `python`, `python -u` or `torchrun`: each rank already runs in a Python.

    `accelerate launch` becomes ACCELERATE_LAUNCH. Raises UsageError for options of python, for numbers of nodes or
    ranks, for other launchers, and for an empty first word.
    """
    if not words:
        return ()
    name, rest = _split_launcher(words)
    if name == _TORCHRUN and rest and (not rest[0].startswith("-") or rest[0] == "-m"):
        return _checked(rest)
    if name == _ACCELERATE:
        return _checked((*ACCELERATE_LAUNCH, *_without_shape(rest)))
    if name:
        raise _refused_launcher(name, rest)
    if words[:2] == ("uv", "run"):
        raise UsageError(
            "COMMAND: uv run is no Python script; type --no-python before it, or name its environment, as in: "
            f"--venv .venv {shlex.join(_program_in(words))}"
        )
    if not re.fullmatch(_RUNNERS, words[0]):
        return _checked(words)
    rest = words[1:]
    while rest and rest[0] == "-u":
        rest = rest[1:]
    if not rest:
        raise UsageError(f"COMMAND is {quote_value(words[0])} alone; name a script, as in: train.py --lr 0.1")
    if rest[0].startswith("-") and rest[0] != "-m":
        raise _lost_option(rest[0], words[0])
    return _checked(rest)


def check_executable(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a COMMAND that is an executable. Raises UsageError when the first word cannot be one."""
    if words and (not words[0] or words[0].startswith("-")):
        raise UsageError(
            f"--no-python: COMMAND is {quote_value(words[0])}; name an executable, as in: --no-python ./train --lr 0.1"
        )
    name, rest = _split_launcher(words)
    if name:
        raise _refused_launcher(name, rest)
    return _checked(words) if words else ()


def interpreter(words: tuple[str, ...]) -> str | None:
    """Return the Python of a leading `/path/to/python` or of a launcher beside it; None for a word without a path."""
    if not words or "/" not in words[0] or not re.fullmatch(rf"{_RUNNERS}|.*/{_ACCELERATE}", words[0]):
        return None
    path = PurePath(words[0])
    return str(path.with_name("python")) if path.name in (_TORCHRUN, _ACCELERATE) else words[0]


def is_worker(words: tuple[str, ...]) -> bool:
    """Return whether these words are for the bundled worker: no words, or its options."""
    return not words or (words[0].startswith("-") and words[0] != "-m")


def script_place(words: tuple[str, ...]) -> int | None:
    """Return the place of the script's path; None for a module or the bundled worker."""
    if words[:2] == ACCELERATE_LAUNCH:
        place = _program_place(words[2:])
        return None if place is None or words[2 + place].startswith("-") else 2 + place
    return None if is_worker(words) or words[0] == "-m" else 0


def script_of(words: tuple[str, ...]) -> str | None:
    """Return the path of the script; None for a module or the bundled worker."""
    place = script_place(words)
    return None if place is None else words[place]


def replace_arguments(words: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return COMMAND with `more` at its end, and without its own arguments of the same names.

    An argument's name is a word that begins with `-`, or what stands before the `=` of a word. Its value is what
    follows the `=`, or the next word if `more` gives that argument a value, too, and the word does not begin with `-`.
    """
    given = {
        _argument_name(word): "=" in word or not _argument_name(following)
        for word, following in pairwise((*more, "-"))
        if _argument_name(word)
    }
    first = 2 if words[0] == "-m" else 1
    left, rest = list(words[:first]), list(words[first:])
    while rest:
        word = rest.pop(0)
        name = _argument_name(word)
        if name not in given:
            left.append(word)
        elif given[name] and "=" not in word and rest and not _argument_name(rest[0]):
            rest.pop(0)
    return (*left, *more)


def _argument_name(word: str) -> str:
    """Return the name of `--name`, `--name=value` or `name=value`; empty for another word, as a value or -1."""
    name, equals, _ = word.partition("=")
    return name if equals or re.match(r"-[^\d.]", word) or word == "-" else ""


def name_of(words: tuple[str, ...]) -> str:
    """Return a job's name for a script or a module: its stem, with `-` for characters that are not allowed."""
    if words[:2] == ACCELERATE_LAUNCH:
        return name_of(_program_in(words[2:]))
    named = words[1].rpartition(".")[2] if words[0] == "-m" else PurePath(words[0]).stem
    return as_name(named)


def as_name(text: str) -> str:
    """Return the nearest allowed job name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:_NAME_LENGTH]
    return f"job-{name}"[:_NAME_LENGTH] if not name or re.fullmatch(r"\d+(_\d+)?", name) else name


def _split_launcher(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the launcher that begins COMMAND, and its arguments; an empty name for another program."""
    rest = words[1:] if words and re.fullmatch(_RUNNERS, words[0]) else words
    rest = rest[1:] if rest[:1] == ("-u",) else rest
    if len(rest) > 1 and rest[0] == "-m" and rest[1] in _LAUNCHER_MODULES:
        return _LAUNCHER_MODULES[rest[1]], rest[2:]
    name = PurePath(words[0]).name if words else ""
    if name == _ACCELERATE:
        return (name, words[2:]) if words[1:2] == ("launch",) else ("", words)
    return (name, words[1:]) if name in _LAUNCHERS and len(words) > 1 else ("", words)


def _refused_launcher(name: str, rest: tuple[str, ...]) -> UsageError:
    """Return the error for a launcher, with the words to type instead."""
    if found := re.search(r"--nnodes[= ]\d+:\d+", " ".join(rest[: _program_place(rest)])):
        return UsageError(f"COMMAND: {found[0]} is a range, and slurmddp is not elastic; give --nodes N instead")
    if name == _TORCHRUN and all(word.startswith("-") for word in rest):
        return _without_script(name)
    typed = shlex.join((*_shape_options(rest), *_program_in(rest)))
    return UsageError(
        f"COMMAND: {name} starts ranks, and so does slurmddp; type the program alone, with slurmddp's own options: "
        f"{typed}{_LAUNCHERS[name]}"
    )


def _without_shape(rest: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of `accelerate launch`. Raises UsageError for numbers of ranks, and without a script."""
    if _program_place(rest) is None:
        raise _without_script("accelerate launch")
    if shape := _shape_options(rest):
        raise UsageError(
            "COMMAND: the numbers of nodes and ranks are options of slurmddp; leave those of accelerate out and type "
            f"{shlex.join(shape)} accelerate launch ... {shlex.join(_program_in(rest))}"
        )
    return rest


def _without_script(launcher: str) -> UsageError:
    return UsageError(f"COMMAND: {launcher} has no script; name one, as in: {launcher} train.py --lr 0.1")


def _shape_options(words: tuple[str, ...]) -> list[str]:
    """Return our options for those of a launcher that are numbers of nodes or ranks."""
    found: dict[str, str] = {}
    for word, following in pairwise((*words[: _program_place(words)], "")):
        name, equals, value = word.partition("=")
        key = _SHAPE.get(name.lstrip("-").replace("_", "-"))
        number = value if equals else following
        if name.startswith("--") and key is not None and number.isdecimal():
            found[key] = number
    if "" in found:
        found["ntasks-per-node"] = str(int(found.pop("")) // max(int(found.get("nodes", 1)), 1))
    return [word for key, number in found.items() for word in (f"--{key}", number)]


def _program_place(words: tuple[str, ...]) -> int | None:
    """Return the place of the script, or of the `-m` before a module, among a launcher's words."""
    places = (place for place, word in enumerate(words) if word.endswith(".py") or word in ("-m", "--module"))
    return next(places, None)


def _program_in(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the script or `-m` and the module among a launcher's words, with the arguments."""
    place = _program_place(words)
    if place is None:
        return ("train.py", "--lr", "0.1")
    return ("-m" if words[place] == "--module" else words[place], *words[place + 1 :])


def _lost_option(option: str, runner: str) -> UsageError:
    return UsageError(
        f"COMMAND: option {quote_value(option)} of {quote_value(runner)}: of python's options only -u and -m are "
        f"allowed; leave {quote_value(option)} out"
    )


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words[0]:
        raise UsageError("COMMAND begins with an empty word; name a script, as in: train.py --lr 0.1")
    if words[0] == "-":
        raise UsageError("COMMAND is '-', and a script cannot be read from standard input; name a script file")
    if words[0].endswith(".toml"):
        raise UsageError(f"COMMAND is {quote_value(words[0])}, a job file; give one job file, and a script as COMMAND")
    if words[0] == "-m" and (len(words) == 1 or not words[1]):
        raise UsageError("COMMAND: -m needs a module, as in: -m pkg.train --lr 0.1")
    for word in words:
        if "\0" in word:
            raise UsageError(
                f"COMMAND: {quote_value(word)} has a NUL character, which is not allowed in a command line"
            )
    return words
