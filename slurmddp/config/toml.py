"""Reads the TOML files of a job: checks their keys, and makes their paths relative to the working directory. No I/O."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from slurmddp.config.command import parse
from slurmddp.config.container import is_path
from slurmddp.config.job_spec import ALIASES, JOB_FIELDS, JOB_WORD, VENV_VARIABLE
from slurmddp.config.option_types import Field, Given, unknown
from slurmddp.config.worker_options import DATA_NAMES, WORKER_FIELDS
from slurmddp.errors import UsageError
from slurmddp.text import escape_text, mask_secrets, quote_value

_PATHS: Final = ("template", "setup-file", "venv", "runs-dir")
_MAYBE_PATHS: Final = ("python", "conda")
PATH_KEYS: Final = (*_PATHS, *_MAYBE_PATHS, "container")
REMOTE_KEYS: Final = ("host", "remote-dir")
_JOB_KEYS: Final = (*(key for key in JOB_FIELDS if key != "profile"), *ALIASES, "worker")
_PROFILE_KEYS: Final = (*_JOB_KEYS, *REMOTE_KEYS)
CONFIGURATION_KEYS: Final = (*_PROFILE_KEYS, "profile")
JOB_FILE_KEYS: Final = (*_JOB_KEYS, "profile", "command", "recorded")

_MAX_DEPTH: Final = 100
_QUOTED: Final = '; a text stands in quotes, as in partition = "gpu"'
_Byte = Annotated[int, msgspec.Meta(gt=0, lt=256)]


class Layer(msgspec.Struct, frozen=True):
    """The raw values of one source: a file, one profile of a file, the environment, or the command line."""

    place: str
    """For messages: `project file slurmddp.toml, table profile.big`."""
    options: Mapping[str, Given]
    """By field of JobSpec, and REMOTE_KEYS."""
    worker: Mapping[str, Given] = {}
    """By field of WorkerOptions."""
    command: tuple[str, ...] = ()
    command_origin: str = ""
    setup_order: tuple[str, ...] = ()
    """The order of the set-up options as they were typed, or as a recorded job has it; empty for that of `options`."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One file, with checked keys and with paths relative to the working directory."""

    kind: str
    """`job file`, `project file` or `user file`."""
    path: Path
    table: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    """The tables `[profile.NAME]`, by name, which are not in `table`."""
    place: Callable[..., str]
    """Describes the table, or one in it, for messages."""

    @property
    def is_recorded(self) -> bool:
        """Whether it is the spec.toml of a run, which has every value."""
        return "recorded" in self.table

    def layers(self, profile: str | None) -> Iterator[Layer]:
        """Yield the plain values, then those of the profile, which beat the plain ones.

        Raises UsageError for a wrong command, and for a command together with the worker's options.
        """
        layers = [self._layer(self.table)]
        if profile is not None and profile in self.profiles:
            layers.append(self._layer(self.profiles[profile], "profile", profile))
        if layers[0].command and any(layer.worker for layer in layers):
            raise UsageError(f"{self.place()}: command and [worker] exclude each other; keep one")
        yield from layers

    def _layer(self, table: Mapping[str, Any], *tables: str) -> Layer:
        place = self.place(*tables)
        order = table.get("recorded", {}).get("setup-order")
        return Layer(
            place=place,
            options=_given(table, JOB_FIELDS, place)
            | {key: Given(table[key], f"{place}, key {key}") for key in REMOTE_KEYS if key in table},
            worker=_given(table.get("worker", {}), WORKER_FIELDS, self.place(*tables, "worker")),
            command=_command(table.get("command", []), place),
            command_origin=f"{place}, key command",
            setup_order=tuple(map(str, order)) if isinstance(order, list) else (),
        )


def _given(table: Mapping[str, Any], fields: Mapping[str, Field], place: str) -> dict[str, Given]:
    return {fields[key].name: Given(raw, f"{place}, key {key}") for key, raw in table.items() if key in fields}


def _command(raw: Any, place: str) -> tuple[str, ...]:
    """Return the words of a command; one that is not UTF-8 is the list of its bytes."""
    try:
        words = msgspec.convert(raw, tuple[str | tuple[_Byte, ...], ...])
    except msgspec.ValidationError as error:
        raise UsageError(
            f'{place}, key command: {quote_value(raw)} is not a list of strings, as in ["train.py", "--lr", "0.1"]'
        ) from error
    return tuple(word if isinstance(word, str) else bytes(word).decode("utf-8", "surrogateescape") for word in words)


def parse_toml(raw: bytes, place: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises UsageError with the line of a syntax error."""
    import tomllib  # noqa: PLC0415 most jobs have no file, and its import slows down every start

    try:
        tables = tomllib.loads(raw.decode("utf-8-sig"))
        _check_values(tables)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{place}, line {line}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{place}: {error}{_QUOTED * ('value (at line' in str(error))}") from error
    except (RecursionError, ValueError) as error:  # Python limits the digits of a number
        raise UsageError(f"{place}: its tables are nested too deeply, or a number in it is too big") from error
    return tables


def _check_values(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a number that msgspec cannot hold, and for tables that are nested too deeply."""
    if depth > _MAX_DEPTH or (isinstance(value, int) and abs(value) >= 2**63):
        raise ValueError
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_values(item, depth + 1)


def build_source(
    kind: str, path: Path, table: Any, *, root: str = "", keys: Sequence[str] = CONFIGURATION_KEYS
) -> Source:
    """Return a file, its table `root` checked and in one form. Raises UsageError for a key that is not allowed."""
    place = partial(describe_place, kind, path, root)
    table = _normalise(table, keys, place)
    profiles = table.pop("profile") if isinstance(table.get("profile"), dict) else {}
    profiles = {name: _normalise(raw, _PROFILE_KEYS, partial(place, "profile", name)) for name, raw in profiles.items()}
    record = table.get("recorded", {})
    directory = record.get("directory", "") if isinstance(record, dict) else None
    if not isinstance(directory, str):
        raise UsageError(f"{place()}: table recorded is not as slurmddp writes it; leave it out")
    for one in (table, *profiles.values()):
        _relocate(one, Path(directory or path.parent).absolute())
    return Source(kind=kind, path=path, table=table, profiles=profiles, place=place)


def describe_place(kind: str, path: Path, *tables: str) -> str:
    """Return a file and a table in it, in one line, for messages."""
    name = ".".join(filter(None, tables))
    return escape_text(f"{kind} {path}, table {name}" if name else f"{kind} {path}")


def _check_keys(table: Any, keys: Sequence[str], place: Callable[..., str]) -> None:
    """Raise UsageError for other keys than these, and for unknown ones in the table `worker`."""
    if not isinstance(table, dict):
        raise UsageError(f"{place()}: {quote_value(table)} is not a table of job options")
    for key in table:
        if key not in keys and key in JOB_FILE_KEYS:
            raise UsageError(f"{place()}: {key} is not allowed here; write it at the top of a job file")
        if key not in keys and isinstance(table[key], dict):
            tables = "the tables are worker, env and profile.NAME"
            raise UsageError(f"{place()}: there is no table [{escape_text(key)}]; write its keys without it; {tables}")
        if key not in keys:
            raise unknown(key, keys, place())
        if key in REMOTE_KEYS and not isinstance(table[key], str):
            raise UsageError(f'{place()}, key {key}: {quote_value(table[key])} is not a string, as in {key} = "name"')
    worker = table.get("worker", {})
    if not isinstance(worker, dict):
        raise UsageError(f"{place()}, key worker: {quote_value(worker)} is not a table of the worker's options")
    for key, value in worker.items():
        is_gone = "recorded" in table and value in (False, "none")  # an older version had it, and it was switched off
        if key not in WORKER_FIELDS and not is_gone:
            raise unknown(key, WORKER_FIELDS, place("worker"))


def _normalise(table: dict[str, Any], keys: Sequence[str], place: Callable[..., str]) -> dict[str, Any]:
    """Check the keys, replace second names of options, as `name` by `job-name`, and make a list of a table `env`.

    `place` describes the table, or one in it, for messages.
    """
    _check_keys(table, keys, place)
    for alias, key in ALIASES.items():
        if alias in table:
            if key in table:
                raise UsageError(f"{place()}: {alias} and {key} are the same option; keep one")
            table[key] = table.pop(alias)
    if isinstance(variables := table.get("env"), dict):
        for key, value in variables.items():
            if not isinstance(value, str) and type(value) not in (int, float):
                raise UsageError(
                    f"{place('env')}, key {key}: {quote_value(mask_secrets({key: value})[key])} is not a string or a "
                    "number; write it with quotes"
                )
        table["env"] = [f"{key}={value}" for key, value in variables.items()]
    return table


def _relocate(table: dict[str, Any], base: Path) -> None:
    """Make paths that are relative to the file, or to where the job was recorded, relative to the working directory."""
    for key, value in table.items():
        if isinstance(value, str) and value and _names_path(key, value):
            table[key] = _from_working_directory(base, value)
    worker = table.get("worker", {})
    data = worker.get("data")
    if isinstance(data, str) and data and data not in DATA_NAMES and "://" not in data:
        worker["data"] = _from_working_directory(base, data)
    if "command" in table:
        table["command"] = _relocate_command(table["command"], base, executable=bool(table.get("no-python")))


def _names_path(key: str, value: str) -> bool:
    """Return whether the value of an option is a path, not the name of a program, an environment or an image."""
    if key == "venv" and (JOB_WORD.match(value) or VENV_VARIABLE.match(value)):
        return False
    return key in _PATHS or (key in _MAYBE_PATHS and "/" in value) or (key == "container" and is_path(value))


def _from_working_directory(base: Path, path: str) -> str:
    path = os.path.expanduser(path)  # noqa: PTH111 pathlib would drop a leading ./
    return path if base == Path.cwd() else str(base / path)


def _relocate_command(words: Any, base: Path, *, executable: bool) -> Any:
    """Make the program's path, which may stand after `python`, relative to the working directory."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words[:2]):
        return words
    command = parse(tuple(str(word) for word in words), executable=executable)
    places = {0} if command.python else set()
    if command.path_place is not None:  # what stands in front of it may have been left out
        places.add(command.path_place + len(words) - len(command.words))
    return [_from_working_directory(base, word) if at in places else word for at, word in enumerate(words)]
