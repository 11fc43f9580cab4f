"""Where each value comes from: command line > environment > job file > built-in. Reads the job file, no more."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurmddp import command, interpreter
from slurmddp.container import is_path
from slurmddp.errors import UsageError
from slurmddp.fields import Field, convert, shown, unknown
from slurmddp.spec import JOB_FIELDS, JobSpec
from slurmddp.worker.options import DATA_NAMES, WORKER_FIELDS, WorkerOptions, words_given

_PATHS: Final = ("template", "setup-file", "venv", "runs-dir")
_MAYBE_PATHS: Final = ("python", "conda")
_FILE_KEYS: Final = (*JOB_FIELDS, "name", "command", "worker", "recorded")

Found = dict[str, tuple[Any, str]]
"""A raw value and where it was found, by key."""


class Resolved(NamedTuple):
    """A job, and for each of its values the place it came from."""

    spec: JobSpec
    origins: Mapping[str, str]


def resolve(
    *,
    options: Mapping[str, Any],
    words: tuple[str, ...],
    job_file: Path | None,
    environ: Mapping[str, str],
    worker: Mapping[str, Any] | None = None,
) -> Resolved:
    """Merge the sources, first come first served, and make the job of them.

    `options` are raw values of the command line by key, `worker` those for the bundled worker, `words` the COMMAND.
    Raises UsageError with the origin of a wrong value.
    """
    file = read_job_file(job_file) if job_file else {}
    found: Found = {
        **_from_file(file, job_file),
        **_from_environment(environ),
        **{key: (value, f"--{key}") for key, value in options.items()},
    }
    values = {JOB_FIELDS[key].name: convert(JOB_FIELDS[key], raw, origin) for key, (raw, origin) in found.items()}
    origins = {key: origin for key, (_, origin) in found.items()}
    executable = bool(values.get("no_python"))
    values["command"], values["worker"] = _program(words, file, job_file, worker or {}, executable=executable)
    python = command.interpreter(words or _command_in(file, job_file))
    if python and values["command"] and "python" not in values and not executable:
        values["python"], origins["python"] = python, "COMMAND"
    if not {"python", "venv", "conda", "container"} & values.keys():
        needs = bool(values["command"] and not executable) or values["worker"].is_own_task
        if own := interpreter.find(environ, Path.cwd(), needs=needs):
            values["python"], origins["python"] = own
    if "job_name" not in values:
        values["job_name"], origins["job-name"] = _default_name(values, job_file)
    builtin = {key: "built-in" for key in JOB_FIELDS if key not in origins}
    return Resolved(JobSpec(**values), {**origins, **builtin})


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the tables of a job file, paths in it made right for the working directory.

    Raises UsageError with the line of a mistake in its syntax, and for unknown keys.
    """
    import tomllib  # noqa: PLC0415 most jobs have no file, and every start would pay for it

    try:
        text = path.read_bytes().decode("utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"job file {shown(str(path))} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"job file {path}, line {line}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        said = str(error).replace("end of document", f"line {len(text.splitlines())}, its end")
        raise UsageError(f"job file {path}: {said}") from error
    for key in table:
        if key not in _FILE_KEYS:
            raise unknown(key, _FILE_KEYS, f"job file {path}")
    return _relocated(_normalised(table, path), path)


def recorded(resolved: Resolved, *, directory: str, version: str) -> dict[str, Any]:
    """Return the job as tables of a job file that repeats it: every value, and where each came from.

    All but `reset`, which is meant once.
    """
    spec = resolved.spec
    values = {key: getattr(spec, field.name) for key, field in JOB_FIELDS.items() if key != "reset"}
    table: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value is not None
    }
    if spec.command:
        table["command"] = [_in_toml(word) for word in spec.command]
    else:
        asked = {key: getattr(spec.worker, field.name) for key, field in WORKER_FIELDS.items()}
        table["worker"] = {key: value for key, value in asked.items() if value is not None}
    table["recorded"] = {"version": version, "directory": directory, "origins": dict(resolved.origins)}
    return table


def _in_toml(word: str) -> str | list[int]:
    """Return a word as TOML can hold it: bytes that are no UTF-8 as their numbers."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        return list(word.encode("utf-8", "surrogateescape"))
    return word


def _from_environment(environ: Mapping[str, str]) -> Found:
    found: Found = {}
    for key, field in JOB_FIELDS.items():
        ours = f"SLURMDDP_{field.name.upper()}"
        for variable in (field.option.slurm_variable, ours):
            if variable and environ.get(variable):
                found[key] = (_listed(field, environ[variable]), variable)
    return found


def _listed(field: Field, text: str) -> Any:
    """A list in a variable has one item a line."""
    return tuple(text.splitlines()) if field.is_list else text


def _from_file(table: Mapping[str, Any], path: Path | None) -> Found:
    return {key: (raw, f"job file {path}, key {key}") for key, raw in table.items() if key in JOB_FIELDS}


def _normalised(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Take `name` for `job-name`, and a table `env` for its list."""
    if "name" in table:
        if "job-name" in table:
            raise UsageError(f"job file {path}: name and job-name are the same option; keep one")
        table["job-name"] = table.pop("name")
    if isinstance(table.get("env"), dict):
        table["env"] = [f"{key}={_variable(key, value, path)}" for key, value in table["env"].items()]
    return table


def _variable(key: str, value: Any, path: Path) -> str:
    if isinstance(value, str) or type(value) in (int, float):
        return str(value)
    raise UsageError(f"job file {path}, table env, key {key}: {shown(value)} is not a text or a number")


def _relocated(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Make relative paths, which are relative to the file (or to where it was recorded), right from here."""
    base = Path(_recorded_directory(table, path) or path.parent).absolute()
    for key in (*_PATHS, *_MAYBE_PATHS):
        table = _with_path(table, key, base, always=key in _PATHS)
    if is_path(str(table.get("container", ""))):
        table = _with_path(table, "container", base, always=True)
    if isinstance(table.get("worker"), dict) and _is_path(table["worker"].get("data")):
        table["worker"] = _with_path(table["worker"], "data", base, always=True)
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


def _recorded_directory(table: Mapping[str, Any], path: Path) -> str:
    record = table.get("recorded", {})
    directory = record.get("directory", "") if isinstance(record, dict) else None
    if not isinstance(directory, str):
        raise UsageError(f"job file {path}: table recorded is not as slurmddp writes it; leave it out")
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


def _program(
    words: tuple[str, ...], file: Mapping[str, Any], path: Path | None, worker: Mapping[str, Any], *, executable: bool
) -> tuple[tuple[str, ...], WorkerOptions]:
    """Return the command, or the bundled worker's options, from the command line and the job file."""
    in_file, table = _command_in(file, path), _worker_in(file, path)
    if in_file and table:
        raise UsageError(f"job file {path}: command and [worker] exclude each other; keep one")
    if executable:
        in_file, words = (), command.as_executable(words or in_file)
    else:
        in_file, words = command.normalise(in_file), command.normalise(words)
    options = [*(f"--{key}" for key in worker), *(words if command.is_worker(words) else ())]
    if not command.is_worker(words):
        _check_none(options, f"COMMAND is {shown(words[0])}")
        return words, WorkerOptions()
    if not command.is_worker(in_file):
        _check_none(options, f"job file {path} has a command")
        return in_file, WorkerOptions()
    direct = {key: convert(WORKER_FIELDS[key], raw, f"--{key}") for key, raw in worker.items()}
    given = table | words_given(list(in_file)) | direct | words_given(list(words))
    return (), WorkerOptions(**{WORKER_FIELDS[key].name: value for key, value in given.items()})


def _check_none(options: Sequence[str], why: str) -> None:
    if options:
        raise UsageError(f"{shown(options[0])} is for the bundled worker, but {why}; a script's own come after it")


def _command_in(file: Mapping[str, Any], path: Path | None) -> tuple[str, ...]:
    raw = file.get("command", [])
    if not isinstance(raw, list) or not all(isinstance(word, str) or _is_bytes(word) for word in raw):
        raise UsageError(f'job file {path}, key command: {shown(raw)} is not a list of texts, as in ["train.py"]')
    return tuple(word if isinstance(word, str) else bytes(word).decode("utf-8", "surrogateescape") for word in raw)


def _is_bytes(word: Any) -> bool:
    return isinstance(word, list) and all(type(byte) is int and 0 < byte < 256 for byte in word)  # noqa: PLR2004 a byte


def _worker_in(file: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    table = file.get("worker", {})
    if not isinstance(table, dict):
        raise UsageError(f"job file {path}, key worker: {shown(table)} is not a table of the worker's options")
    for key in table:
        if key not in WORKER_FIELDS:
            raise unknown(key, WORKER_FIELDS, f"job file {path}, table worker")
    origin = f"job file {path}, table worker"
    return {key: convert(WORKER_FIELDS[key], raw, f"{origin}, key {key}") for key, raw in table.items()}


def _default_name(values: Mapping[str, Any], job_file: Path | None) -> tuple[str, str]:
    if job_file:
        return command.as_name(job_file.stem), "the job file's name"
    if values["command"]:
        return command.name_of(values["command"]), "COMMAND"
    return command.as_name(values["worker"].task.rpartition(":")[2]), "the worker's task"
