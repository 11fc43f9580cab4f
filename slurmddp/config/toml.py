"""What a TOML file of ours says: its keys are checked, and its paths made right for the working directory. No I/O."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from slurmddp.config import command
from slurmddp.config.container import is_path
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.options import unknown
from slurmddp.config.worker_options import DATA_NAMES, WORKER_FIELDS
from slurmddp.errors import UsageError
from slurmddp.text import masked, shown

_PATHS: Final = ("template", "setup-file", "venv", "runs-dir")
_MAYBE_PATHS: Final = ("python", "conda")
PATH_KEYS: Final = (*_PATHS, *_MAYBE_PATHS, "container")
_PROFILE_KEYS: Final = (*(key for key in JOB_FIELDS if key != "profile"), "name", "worker")
CONFIGURATION_KEYS: Final = (*_PROFILE_KEYS, "profile")
JOB_FILE_KEYS: Final = (*CONFIGURATION_KEYS, "command", "recorded")

_DEPTH: Final = 100


class Layer(NamedTuple):
    """Values of one rank: a file's plain ones, or those of one of its profiles."""

    place: str
    """For people: `project file slurmddp.toml, table profile.big`."""
    options: Mapping[str, Any]
    """Job options by key, raw."""
    worker_place: str
    worker: Mapping[str, Any]
    """The bundled worker's options by key, raw."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was read: its keys are known ones, and its paths right for the working directory."""

    kind: str
    """`job file`, `project file` or `user file`."""
    path: Path
    root: str = ""
    """The table that the values stand in; empty for the top of the file."""
    table: Mapping[str, Any]

    def place(self, *tables: str) -> str:
        """Return where that table stands, for people."""
        return place_of(self.kind, self.path, self.root, *tables)

    @property
    def profiles(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables `[profile.NAME]`, by name."""
        found = self.table.get("profile")
        return found if _is_table(found) else {}

    @property
    def is_recorded(self) -> bool:
        """Whether it is the spec.toml of a run, which has every value."""
        return "recorded" in self.table

    def layers(self, profile: str | None) -> Iterator[Layer]:
        """Yield the plain values, then those of the profile, which beat them."""
        yield self._layer(self.table)
        if profile is not None and profile in self.profiles:
            yield self._layer(self.profiles[profile], "profile", profile)

    def _layer(self, table: Mapping[str, Any], *tables: str) -> Layer:
        options = {
            key: raw for key, raw in table.items() if key in JOB_FIELDS and not (key == "profile" and _is_table(raw))
        }
        return Layer(self.place(*tables), options, self.place(*tables, "worker"), table.get("worker", {}))


def parse(raw: bytes, place: str) -> dict[str, Any]:
    """Return the tables of a TOML text; raise UsageError with the line of a mistake in it."""
    import tomllib  # noqa: PLC0415 most jobs have no file, and every start would pay for it

    try:
        text = raw.decode("utf-8")
        tables = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{place}, line {line}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        said = str(error).replace("end of document", f"line {len(text.splitlines())}, its end")
        raise UsageError(f"{place}: {said}{_hint(text)}") from error
    except RecursionError as error:
        raise _too_deep(place) from error
    except ValueError as error:  # Python's limit of the digits of a number
        raise _too_big(place) from error
    _check_size(tables, place)
    return tables


def _check_size(value: Any, place: str, depth: int = 0) -> None:
    """Raise UsageError for what no TOML needs, and what later could neither be walked through nor shown."""
    if depth > _DEPTH:
        raise _too_deep(place)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise _too_big(place)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_size(item, place, depth + 1)


def _too_deep(place: str) -> UsageError:
    return UsageError(f"{place}: its tables and lists are nested too deeply; at most {_DEPTH} levels are allowed")


def _too_big(place: str) -> UsageError:
    return UsageError(f"{place}: a number in it is too big; at most {2**63 - 1} is allowed")


def _hint(text: str) -> str:
    """TOML has one `profile` a file: a text that chooses one, or the tables."""
    both = all(re.search(pattern, text, re.MULTILINE) for pattern in (r"^\s*profile\s*=", r"^\s*\[[\w.]*\bprofile\."))
    return "; a file that has tables [profile.NAME] cannot choose one of them, --profile NAME does" if both else ""


def source(kind: str, path: Path, table: Any, *, root: str = "", keys: Sequence[str] = CONFIGURATION_KEYS) -> Source:
    """Return a file's tables, checked and in one form; raise UsageError for a key that has no place there."""
    place = place_of(kind, path, root)
    table = _normalised(_known(table, keys, place), place)
    if _is_table(table.get("profile")):
        table["profile"] = {
            name: _profile(raw, place_of(kind, path, root, "profile", name)) for name, raw in table["profile"].items()
        }
    base = Path(_recorded_directory(table, place) or path.parent).absolute()
    return Source(kind=kind, path=path, root=root, table=_relocated(table, base))


def _is_table(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _profile(raw: Any, place: str) -> dict[str, Any]:
    return _normalised(_known(raw, _PROFILE_KEYS, place), place)


def _known(table: Any, keys: Sequence[str], place: str) -> dict[str, Any]:
    """Return a table that has only these keys, and in its own table `worker` only the worker's."""
    if not _is_table(table):
        raise UsageError(f"{place}: {shown(table)} is not a table of job options")
    for key in table:
        if key not in keys and key in JOB_FILE_KEYS:
            raise UsageError(f"{place}: {key} has no place here; it stands at the top of a job file")
        if key not in keys:
            raise unknown(key, keys, place)
    worker = table.get("worker", {})
    if not _is_table(worker):
        raise UsageError(f"{place}, key worker: {shown(worker)} is not a table of the worker's options")
    for key in worker:
        if key not in WORKER_FIELDS:
            raise unknown(key, WORKER_FIELDS, _within(place, "worker"))
    return table


def place_of(kind: str, path: Path, *tables: str) -> str:
    """Return where a value stands, for a message of one line."""
    name = ".".join(filter(None, tables))
    return f"{kind} {_plain(str(path))}, table {_plain(name)}" if name else f"{kind} {_plain(str(path))}"


def _plain(text: str) -> str:
    return text if text.isprintable() else ascii(text)


def _within(place: str, table: str) -> str:
    return f"{place}.{table}" if ", table " in place else f"{place}, table {table}"


def _normalised(table: dict[str, Any], place: str) -> dict[str, Any]:
    """Take `name` for `job-name`, and a table `env` for its list."""
    if "name" in table:
        if "job-name" in table:
            raise UsageError(f"{place}: name and job-name are the same option; keep one")
        table["job-name"] = table.pop("name")
    if isinstance(table.get("env"), dict):
        table["env"] = [f"{key}={_variable(key, value, place)}" for key, value in table["env"].items()]
    return table


def _variable(key: str, value: Any, place: str) -> str:
    if isinstance(value, str) or type(value) in (int, float):
        return str(value)
    raise UsageError(
        f"{_within(place, 'env')}, key {key}: {shown(masked({key: value})[key])} is not a text or a number"
    )


def _relocated(table: dict[str, Any], base: Path) -> dict[str, Any]:
    """Make relative paths, which are relative to the file (or to where it was recorded), right from here."""
    for key in (*_PATHS, *_MAYBE_PATHS):
        table = _with_path(table, key, base, always=key in _PATHS)
    if is_path(str(table.get("container", ""))):
        table = _with_path(table, "container", base, always=True)
    if _is_path(table.get("worker", {}).get("data")):
        table["worker"] = _with_path(table["worker"], "data", base, always=True)
    if _is_table(table.get("profile")):
        table["profile"] = {name: _relocated(profile, base) for name, profile in table["profile"].items()}
    return table | {"command": _relocated_command(table["command"], base)} if "command" in table else table


def _is_path(data: Any) -> bool:
    return isinstance(data, str) and data not in DATA_NAMES and "://" not in data


def _with_path(table: dict[str, Any], key: str, base: Path, *, always: bool) -> dict[str, Any]:
    """Replace a path by what it means from the working directory; unless `always`, one without a slash is a name."""
    value = table.get(key)
    if not isinstance(value, str) or not value or not (always or "/" in value):
        return table
    return table | {key: _from_here(base, value)}


def _from_here(base: Path, path: str) -> str:
    path = os.path.expanduser(path)  # noqa: PTH111 pathlib would drop a leading ./
    return path if base == Path.cwd() else str(base / path)


def _recorded_directory(table: Mapping[str, Any], place: str) -> str:
    record = table.get("recorded", {})
    directory = record.get("directory", "") if isinstance(record, dict) else None
    if not isinstance(directory, str):
        raise UsageError(f"{place}: table recorded is not as slurmddp writes it; leave it out")
    return directory


def _relocated_command(words: Any, base: Path) -> Any:
    """Make the script's path, wherever it stands after `python`, right from here."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words[:2]):
        return words
    place = len(words) - len(command.normalise(tuple(str(word) for word in words)))
    script = command.script_of(tuple(words[place : place + 1]))
    runner = [_from_here(base, word) if "/" in word else word for word in words[: min(place, 1)]]
    rest = [_from_here(base, script), *words[place + 1 :]] if script else words[place:]
    return [*runner, *words[len(runner) : place], *rest]
