"""Where each value comes from: command line > environment > job file > project > user > built-in."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from slurmddp.config import command, job_files, python_env
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.options import Field, convert, unknown
from slurmddp.config.toml import PATH_KEYS, Layer, Source
from slurmddp.config.worker_options import WORKER_FIELDS, WorkerOptions, words_given
from slurmddp.errors import UsageError
from slurmddp.text import shown
from slurmddp.variables import NAMES

BUILT_IN: Final = "built-in"

_ONCE: Final = ("reset", "profile")
"""Options that a recorded job does not repeat: one is meant once, and what the other chose is there in full."""

_ENVIRONMENTS: Final = frozenset({"venv", "conda", "container"})
"""Options that bring a Python."""

Found = dict[str, tuple[Any, str]]
"""A raw value and where it was found, by key."""


class Resolved(NamedTuple):
    """A job, and for each of its values the place it came from."""

    spec: JobSpec
    origins: Mapping[str, str]
    """By key of a job option."""
    program_origins: Mapping[str, str] = MappingProxyType({})
    """Of `command`, or else of each of the bundled worker's options."""
    files: tuple[Source, ...] = ()
    """Those that values were looked for in; the first beats the second."""


def resolve(
    *,
    options: Mapping[str, Any],
    words: tuple[str, ...],
    job_file: Path | None,
    environ: Mapping[str, str],
    worker: Mapping[str, Any] | None = None,
    configuration: Sequence[Source] = (),
) -> Resolved:
    """Merge the sources, first come first served, and make the job of them.

    `options` are raw values of the command line by key, `worker` those for the bundled worker, `words` the COMMAND;
    `configuration` are the files of project and user. Raises UsageError with the origin of a wrong value.
    """
    job = job_files.read_job_file(job_file) if job_file else None
    files = _counting(job, configuration)
    direct = {key: (value, f"--{key}") for key, value in options.items()}
    nearer = _at_home(_from_environment(environ, *("profile",) if job and job.is_recorded else ()) | direct)
    profile = _profile(files, nearer)
    shared = [layer for source in reversed(files) if source is not job for layer in source.layers(profile)]
    own = list(job.layers(profile)) if job else []
    found = _options_in(shared) | _recorded_python(job, _options_in(own), nearer) | nearer
    executable = _is_executable(found)
    program = _program(words, job, _worker_in(shared), _worker_in(own), worker or {}, executable=executable)
    python = command.interpreter(words or _command_in(job))
    beats_it = direct if words else _options_in(own) | nearer
    if python and program.command and "python" not in beats_it and not executable:
        found["python"] = (python, "COMMAND")
    if not found.keys() & {"python", *_ENVIRONMENTS}:
        needs = bool(program.command and not executable) or program.worker.is_own_task
        if theirs := python_env.find(environ, Path.cwd(), needs=needs):
            found["python"] = theirs
    values = {JOB_FIELDS[key].name: convert(JOB_FIELDS[key], raw, origin) for key, (raw, origin) in found.items()}
    origins = {key: origin for key, (_, origin) in found.items()}
    if "job_name" not in values:
        values["job_name"], origins["job-name"] = _default_name(program, job_file)
    spec = JobSpec(**values, command=program.command, worker=program.worker)
    return Resolved(spec, _complete(origins, JOB_FIELDS), program.origins, files)


def _recorded_python(job: Source | None, own: Found, nearer: Found) -> Found:
    """Return a job file's options; without a run's own Python where an environment is given in its place.

    Raises UsageError when that Python was here when the run was recorded, and is gone.
    """
    if job is None or not job.is_recorded or "python" not in own or "python" in nearer:
        return own
    if nearer.keys() & _ENVIRONMENTS and not own.keys() & _ENVIRONMENTS:
        return {key: value for key, value in own.items() if key != "python"}
    python, origin = own["python"]
    if job.table["recorded"].get("python") and not Path(str(python)).exists():
        raise UsageError(f"{origin}: {shown(python)}, which the run was made with, is gone; choose another by --python")
    return own


def _at_home(found: Found) -> Found:
    """Return the values with `~` in paths as the shell would have had it, but for where it stands in a word."""
    return {
        key: (os.path.expanduser(raw) if key in PATH_KEYS and isinstance(raw, str) else raw, origin)  # noqa: PTH111
        for key, (raw, origin) in found.items()
    }


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the tables of a job file, in one form. Raises UsageError as `resolve` does."""
    return dict(job_files.read_job_file(path).table)


def runs_dir(configuration: Sequence[Source], environ: Mapping[str, str]) -> str:
    """Return where the folders of runs lie for commands that describe no job."""
    nearer = _from_environment(environ)
    profile = _profile(configuration, nearer)
    found = _options_in(layer for source in reversed(configuration) for layer in source.layers(profile)) | nearer
    field = JOB_FIELDS["runs-dir"]
    return str(convert(field, *found.get(field.key, (field.default, BUILT_IN))))


def recorded(resolved: Resolved, *, directory: str, version: str) -> dict[str, Any]:
    """Return the job as tables of a job file that repeats it: every value, where each came from, and the Python."""
    spec = resolved.spec
    values = {key: getattr(spec, field.name) for key, field in JOB_FIELDS.items() if key not in _ONCE}
    table: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value is not None
    }
    if spec.command:
        table["command"] = [_in_toml(word) for word in spec.command]
    else:
        asked = {key: getattr(spec.worker, field.name) for key, field in WORKER_FIELDS.items()}
        table["worker"] = {key: value for key, value in asked.items() if value is not None}
    if not table.keys() & {"python", *_ENVIRONMENTS}:
        table["python"] = sys.executable
    seen = {"python": table["python"]} if os.access(table.get("python", ""), os.X_OK) else {}
    table["recorded"] = {"version": version, "directory": directory, **seen, "origins": dict(resolved.origins)}
    return table


def _in_toml(word: str) -> str | list[int]:
    """Return a word as TOML can hold it: bytes that are no UTF-8 as their numbers."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        return list(word.encode("utf-8", "surrogateescape"))
    return word


def _counting(job: Source | None, configuration: Sequence[Source]) -> tuple[Source, ...]:
    """Return the files that count: a recorded job has every value, and takes none of today's configuration."""
    if job is None:
        return tuple(configuration)
    return (job,) if job.is_recorded else (job, *configuration)


def _profile(files: Sequence[Source], nearer: Found) -> str | None:
    """Return the profile that was chosen, which some file must have."""
    found = _options_in(layer for source in reversed(files) for layer in source.layers(None)) | nearer
    if "profile" not in found:
        return None
    raw, origin = found["profile"]
    name: str = convert(JOB_FIELDS["profile"], raw, origin)
    known = list(dict.fromkeys(profile for source in files for profile in source.profiles))
    if not known:
        where = " or ".join(str(source.path) for source in files) or job_files.PROJECT_FILE
        raise UsageError(f"{origin}: there is no profile {shown(name)}; write a table [profile.NAME] into {where}")
    if name not in known:
        raise unknown(name, known, origin, what="profile")
    return name


def _from_environment(environ: Mapping[str, str], *without: str) -> Found:
    found: Found = {}
    for key, field in JOB_FIELDS.items():
        ours = f"SLURMDDP_{field.name.upper()}"
        for variable in (field.option.slurm_variable, ours):
            if variable and environ.get(variable) and key not in without:
                found[key] = (_listed(field, environ[variable]), variable)
    return found


def unknown_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that looks like one of ours and is none, with what may have been meant."""
    known = {f"SLURMDDP_{field.name.upper()}" for field in JOB_FIELDS.values()}
    for name in environ:
        if name.startswith("SLURMDDP_") and not name.startswith("SLURMDDP_TESTS_") and name not in known | NAMES:
            near = str(unknown(name, sorted(known), "")).rpartition("; ")[2]
            yield name, f"no option has this variable; {near}"


def _listed(field: Field, text: str) -> Any:
    """A list in a variable has one item a line."""
    return tuple(text.splitlines()) if field.is_list else text


def _options_in(layers: Iterable[Layer]) -> Found:
    """Return the job options in files; later layers beat earlier ones."""
    return {key: (raw, f"{layer.place}, key {key}") for layer in layers for key, raw in layer.options.items()}


def _worker_in(layers: Iterable[Layer]) -> Found:
    return {key: (raw, f"{layer.worker_place}, key {key}") for layer in layers for key, raw in layer.worker.items()}


def _is_executable(found: Found) -> bool:
    field = JOB_FIELDS["no-python"]
    return bool(convert(field, *found.get(field.key, (field.default, BUILT_IN))))


def _complete(origins: Mapping[str, str], fields: Iterable[str]) -> dict[str, str]:
    return {**origins, **{key: BUILT_IN for key in fields if key not in origins}}


class _Program(NamedTuple):
    command: tuple[str, ...]
    worker: WorkerOptions
    origins: Mapping[str, str]


def _program(
    words: tuple[str, ...],
    job: Source | None,
    shared: Found,
    own: Found,
    worker: Mapping[str, Any],
    *,
    executable: bool,
) -> _Program:
    """Return the command, or the bundled worker's options: of project and user (`shared`), job file and words."""
    in_file, place = _command_in(job), f"{job.place()}, key command" if job else ""
    if job and in_file and own:
        raise UsageError(f"{job.place()}: command and [worker] exclude each other; keep one")
    origin = "the command line" if words else place
    if executable:
        in_file, words = (), command.as_executable(words or in_file)
    else:
        in_file, words = command.normalise(in_file), command.normalise(words)
    options = [*(f"--{key}" for key in worker), *(words if command.is_worker(words) else ())]
    if not command.is_worker(words):
        _check_none(options, f"COMMAND is {shown(words[0])}")
        return _Program(words, WorkerOptions(), {"command": origin})
    if job and not command.is_worker(in_file):
        _check_none(options, f"{job.place()} has a command")
        return _Program(in_file, WorkerOptions(), {"command": origin})
    direct: Found = {key: (raw, f"--{key}") for key, raw in worker.items()}
    return _of_worker(shared | own | _spelt(in_file, place) | direct | _spelt(words))


def _of_worker(found: Found) -> _Program:
    values = {WORKER_FIELDS[key].name: convert(WORKER_FIELDS[key], raw, origin) for key, (raw, origin) in found.items()}
    origins = {key: origin for key, (_, origin) in found.items()}
    return _Program((), WorkerOptions(**values), _complete(origins, WORKER_FIELDS))


def _spelt(words: tuple[str, ...], place: str = "") -> Found:
    return {key: (value, place or f"--{key}") for key, value in words_given(words).items()}


def _check_none(options: Sequence[str], why: str) -> None:
    if options:
        raise UsageError(f"{shown(options[0])} is for the bundled worker, but {why}; a script's own come after it")


def _command_in(job: Source | None) -> tuple[str, ...]:
    raw = job.table.get("command", []) if job else []
    if job and (not isinstance(raw, list) or not all(isinstance(word, str) or _is_bytes(word) for word in raw)):
        raise UsageError(f'{job.place()}, key command: {shown(raw)} is not a list of texts, as in ["train.py"]')
    return tuple(word if isinstance(word, str) else bytes(word).decode("utf-8", "surrogateescape") for word in raw)


def _is_bytes(word: Any) -> bool:
    return isinstance(word, list) and all(type(byte) is int and 0 < byte < 256 for byte in word)  # noqa: PLR2004 a byte


def _default_name(program: _Program, job_file: Path | None) -> tuple[str, str]:
    if job_file:
        return command.as_name(job_file.stem), "the job file's name"
    if program.command:
        return command.name_of(program.command), "COMMAND"
    return command.as_name(program.worker.task.rpartition(":")[2]), "the worker's task"
