"""COMMAND: reads the words that users type into one value, which says all that is asked of COMMAND. No I/O."""

from __future__ import annotations
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, Literal, NamedTuple

from slurmddp.config.foreign_options import Meaning, foreign, key_of
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_TORCHRUN = "torchrun"
_ACCELERATE = "accelerate"
_LAUNCH = "torch.distributed.launch"
_RUNNERS = rf"(.*/)?(python(3(\.\d+)?)?|{_TORCHRUN})"
_NAME_LENGTH: Final = 64

_OF_MPI: Final = ("mpirun", "mpiexec")
_LAUNCHERS: Final = (_TORCHRUN, _LAUNCH, _ACCELERATE, "deepspeed", "composer", "srun", *_OF_MPI)
"""Programs that start ranks."""
_NOTES: Final = {
    _ACCELERATE: "; without --no-python, accelerate launch is understood",
    "deepspeed": "; it gets LOCAL_RANK as a variable, and no --local_rank",
}
"""What else the user must know of a launcher that is refused."""
_LAUNCHER_MODULES: Final = {
    "torch.distributed.run": _TORCHRUN,
    _LAUNCH: _LAUNCH,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": "deepspeed",
    "composer.cli.launcher": "composer",
}
_EXAMPLE: Final = ("train.py", "--lr", "0.1")

_USE_ENV: Final = "--use-env"
ACCELERATE_LAUNCH: Final = ("-m", "accelerate.commands.launch")
"""The first words of a COMMAND that was typed as `accelerate launch`; the worker does its work in each rank."""
LOCAL_RANK_LAUNCH: Final = ("-m", _LAUNCH)
"""The first words of a COMMAND of `torch.distributed.launch` without --use-env, which adds --local-rank=N to it."""
NO_PYTHON: Final = "--no-python"
"""The worker's option for a COMMAND that is an executable."""

Kind = Literal["worker", "script", "module", "executable"]


class Launch(NamedTuple):
    """What the options of a launcher ask for that COMMAND begins with."""

    name: str
    nodes: int | None
    ranks_per_node: int | None
    """None where the launcher was to choose."""
    left_out: tuple[str, ...]
    """Options that have no meaning here."""


class _LauncherLine(NamedTuple):
    """The words behind a launcher, sorted."""

    name: str
    numbers: Mapping[Meaning, str]
    """Of nodes and ranks, as they were typed."""
    left_out: tuple[str, ...]
    others: tuple[str, ...]
    """Options that are not known here."""
    program: tuple[str, ...]
    """The script or `-m` and the module, with the arguments; empty where none is found."""


class Command(NamedTuple):
    """COMMAND: the program that each rank runs."""

    words: tuple[str, ...] = ()
    """The program and its arguments, without a leading `python` or launcher; of the bundled worker its options."""
    kind: Kind = "worker"
    place: int = 0
    """Where the script, the module or the executable stands in the words."""
    python: str | None = None
    """The Python that COMMAND began with, or the one beside its launcher, if that was typed with a path."""
    launch: Launch | None = None

    @property
    def path_place(self) -> int | None:
        """Where the words have the path of a file; None for a module, the bundled worker, and a program in PATH."""
        is_path = self.kind == "script" or (self.kind == "executable" and "/" in self.words[self.place])
        return self.place if is_path else None

    @property
    def script(self) -> str | None:
        """The path of the script; None for another kind of program."""
        return self.words[self.place] if self.kind == "script" else None

    @property
    def name(self) -> str:
        """The name of a job: the stem of the script or of the module, with `-` for characters that are not allowed."""
        word = self.words[self.place]
        return as_name(word.rpartition(".")[2] if self.kind == "module" else PurePath(word).stem)


def parse(typed: tuple[str, ...], *, executable: bool = False) -> Command:
    """Return COMMAND as it is meant; with `executable` (--no-python) the words are an executable and its arguments.

    Each rank already runs in a Python: a leading `python`, `python -u` or launcher is left out. `accelerate launch`
    becomes ACCELERATE_LAUNCH. Raises UsageError for other options of python, for options of a launcher that slurmddp
    cannot follow, and for words that are no program.
    """
    if executable:
        return _parse_executable(typed)
    if not typed:
        return Command()
    if typed[0].startswith("-") and typed[0] != "-m":
        return Command(_checked(typed))
    name, rest = _split_launcher(typed)
    if name:
        return _parse_launcher(_read_launcher(name, rest))._replace(python=_python_of(typed))
    if typed[:2] == ("uv", "run"):
        raise UsageError(
            "COMMAND: uv run is no Python script; type --no-python before it, or name its environment, as in: "
            f"--venv .venv {shlex.join(_program_in(typed) or _EXAMPLE)}"
        )
    if not re.fullmatch(_RUNNERS, typed[0]):
        return _parse_program(typed)
    rest = typed[1:]
    while rest[:1] == ("-u",):
        rest = rest[1:]
    if not rest:
        raise UsageError(f"COMMAND is {quote_value(typed[0])} alone; name a script, as in: train.py --lr 0.1")
    if rest[0].startswith("-") and rest[0] != "-m":
        option = quote_value(rest[0])
        raise UsageError(
            f"COMMAND: option {option} of {quote_value(typed[0])}: of python's options only -u and -m are allowed; "
            f"leave {option} out"
        )
    return _parse_program(rest)._replace(python=_python_of(typed))


def parse_worker_words(words: tuple[str, ...]) -> Command:
    """Return COMMAND from the words behind `python -m slurmddp.worker`."""
    return parse(words[1:], executable=True) if words[:1] == (NO_PYTHON,) else parse(words)


def _parse_executable(words: tuple[str, ...]) -> Command:
    if not words:
        return Command()
    if not words[0] or words[0].startswith("-"):
        raise UsageError(
            f"--no-python: COMMAND is {quote_value(words[0])}; name an executable, as in: --no-python ./train --lr 0.1"
        )
    name, rest = _split_launcher(words)
    if name:
        raise _refused_launcher(_read_launcher(name, rest))
    return Command(_checked(words), "executable")


def _parse_program(words: tuple[str, ...]) -> Command:
    """Return the command of a script, or of `-m` and a module, with its arguments."""
    is_module = _checked(words)[0] == "-m"
    return Command(words, "module", 1) if is_module else Command(words, "script")


def _parse_launcher(line: _LauncherLine) -> Command:
    """Return the command behind a launcher, and what the launcher's options ask for."""
    shape = _shape(line.numbers)
    if shape is None or not line.program or line.name in _OF_MPI or (line.others and line.name != _ACCELERATE):
        raise _refused_launcher(line)
    is_asked = line.numbers or line.left_out or line.name not in (_TORCHRUN, _ACCELERATE, _LAUNCH)
    launch = Launch(line.name, *shape, tuple(name for name in line.left_out if name != _USE_ENV)) if is_asked else None
    command = _parse_program(line.program)
    before: tuple[str, ...] = ()
    if line.name == _ACCELERATE:
        before = (*ACCELERATE_LAUNCH, *line.others)
    elif line.name == _LAUNCH and _USE_ENV not in line.left_out:
        before = LOCAL_RANK_LAUNCH
    return command._replace(words=before + command.words, place=len(before) + command.place, launch=launch)


def _read_launcher(name: str, rest: tuple[str, ...]) -> _LauncherLine:
    """Return the words behind a launcher, sorted. Raises UsageError for one without a script, and a range of nodes."""
    program = rest if name == _TORCHRUN and rest and not rest[0].startswith("-") else _program_in(rest)
    if not program and (name == _ACCELERATE or (name == _TORCHRUN and all(word.startswith("-") for word in rest))):
        shown = "accelerate launch" if name == _ACCELERATE else name
        raise UsageError(f"COMMAND: {shown} has no script; name one, as in: {shown} {shlex.join(_EXAMPLE)}")
    options = list(rest[: len(rest) - len(program)])
    if options[-1:] == ["--"]:
        options.pop()
    elif name != _ACCELERATE:
        behind = 2 if program[:1] == ("-m",) else 1
        is_dashes = program[behind : behind + 1] == ("--",)  # which the argparse of torchrun takes for its own
        program = program[:behind] + program[behind + is_dashes :]
    if found := re.search(r"--nnodes[= ]\d+:\d+", " ".join(options)):
        raise UsageError(f"COMMAND: {found[0]} is a range, and slurmddp is not elastic; give --nodes N instead")
    if name in ("srun", *_OF_MPI) and options and re.fullmatch(_RUNNERS, options[-1]):
        options.pop()
    numbers: dict[Meaning, str] = {}
    left_out: list[str] = []
    others: list[str] = []
    rest_of = iter(options)
    for word in rest_of:
        option, equals, value = word.partition("=")
        found_option = foreign().get(key_of(option)) if word.startswith("-") else None
        if found_option is None or not found_option.meaning:
            others.append(word)
            continue
        if found_option.takes_value and not equals:
            value = next(rest_of, "")
        if found_option.meaning == "rendezvous":
            left_out.append(f"--{key_of(option)}")
        else:
            numbers[found_option.meaning] = value
    return _LauncherLine(name, numbers, tuple(left_out), tuple(others), program)


def _shape(numbers: Mapping[Meaning, str]) -> tuple[int | None, int | None] | None:
    """Return the numbers of nodes and of ranks on each; None where they are not whole numbers that fit."""
    given = {key: int(value) for key, value in numbers.items() if value.isdecimal() and value.isascii()}
    if any(value not in ("auto", "gpu") for key, value in numbers.items() if not given.get(key)):
        return None
    nodes, ranks = given.get("nodes"), given.get("ranks")
    if ranks is None:
        return nodes, given.get("ranks_per_node")
    return None if ranks % (nodes or 1) else (nodes, ranks // (nodes or 1))


def _refused_launcher(line: _LauncherLine) -> UsageError:
    """Return the error for a launcher, with the words to type instead."""
    if line.name in _OF_MPI:
        return UsageError(
            f"COMMAND: {line.name} makes MPI's world, and slurmddp starts the ranks by srun; type the program without "
            f"{line.name}, with --srun mpi=pmi2 (Open MPI: mpi=pmix) if it uses MPI, as in: "
            f"{shlex.join(('--srun', 'mpi=pmi2', *_numbers(line), *(line.program or _EXAMPLE)))}; or keep your line: "
            "put it into a batch script and type: slurmddp submit train.sbatch"
        )
    return UsageError(
        f"COMMAND: {line.name} starts ranks, and so does slurmddp; type the program alone, with slurmddp's own "
        f"options: {shlex.join((*_numbers(line), *(line.program or _EXAMPLE)))}{_NOTES.get(line.name, '')}"
    )


def _numbers(line: _LauncherLine) -> list[str]:
    """Return our options for the numbers of nodes and ranks behind a launcher; none where they do not fit."""
    numbers = zip(("--nodes", "--ntasks-per-node"), _shape(line.numbers) or ())
    return [word for option, number in numbers if number is not None for word in (option, str(number))]


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


def _python_of(typed: tuple[str, ...]) -> str | None:
    """Return the Python of a leading `/path/to/python` or of a launcher beside it; None for a word without a path."""
    path = PurePath(typed[0])
    if "/" not in typed[0] or not re.fullmatch(rf"{_RUNNERS}|.*/{_ACCELERATE}", typed[0]):
        return None
    return str(path.with_name("python")) if path.name in (_TORCHRUN, _ACCELERATE) else typed[0]


def _program_in(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the script or `-m` and the module among a launcher's words, with the arguments; empty without one."""
    for place, word in enumerate(words):
        if word in ("-m", "--module"):
            return ("-m", *words[place + 1 :])
        if word.endswith(".py"):
            return words[place:]
    return ()


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


def replace_arguments(words: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return COMMAND with `more` at its end, and without its own arguments of the same names.

    An argument's name is a word that begins with `-`, or what stands before the `=` of a word. Its value is what
    follows the `=`, or the next word if `more` gives that argument a value, too, and the word does not begin with `-`.
    """
    given = {
        _argument_name(word): "=" in word or not _argument_name(following)
        for word, following in zip(more, (*more[1:], "-"))
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


def as_name(text: str) -> str:
    """Return the nearest allowed job name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:_NAME_LENGTH]
    return f"job-{name}"[:_NAME_LENGTH] if not name or re.fullmatch(r"\d+(_\d+)?", name) else name
