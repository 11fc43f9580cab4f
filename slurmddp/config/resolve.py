"""Merges the sources of a job's values, and keeps for each value where it comes from. Reads the job file.

The sources, the weakest first: built-in values, user file, project file, job file, environment, command line. In a
file, the values of the chosen profile beat the plain ones.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final

import msgspec

from slurmddp.config import job_files, python_env, recipes, script_options
from slurmddp.config.batch_script import BatchScript
from slurmddp.config.command import Command, Launch, as_name, parse
from slurmddp.config.configuration_files import PROJECT_FILE
from slurmddp.config.job_spec import JOB_FIELDS, SETUP, JobSpec
from slurmddp.config.option_types import Field, Given, convert, unknown
from slurmddp.config.toml import PATH_KEYS, REMOTE_KEYS, Layer, Source
from slurmddp.config.worker_options import WORKER_FIELDS, WorkerOptions, parse_words
from slurmddp.errors import UsageError
from slurmddp.text import quote_value, suggest
from slurmddp.variables import NAMES

BUILT_IN: Final = "built-in"
DERIVED_NAMES: Final = ("the job file's name", "COMMAND", "the worker's task", "the batch script's job name")
"""Where the name of a job comes from when none was given."""
_FILE_OR_VARIABLE: Final = r"(?!COMMAND)[A-Z_]{2,}\Z|(job|project|user) file "
"""How the origin of a value begins that was given elsewhere than on the command line."""
RECIPE: Final = "the recipe of "
COMMAND_LINE: Final = "the command line"
_PREFIX: Final = "SLURMDDP_"
_NO_TEXT: Final = re.compile("[\ud800-\udfff]")

_ONCE: Final = ("reset", "profile")
"""Options that a recorded job leaves out: `reset` is for one submission, and the record has the profile's values."""

_ENVIRONMENTS: Final = frozenset({"venv", "conda", "container"})
"""Options that bring a Python."""


class Resolved(msgspec.Struct, frozen=True):
    """A job, and where each of its values comes from."""

    spec: JobSpec
    origins: Mapping[str, str]
    """By field of JobSpec."""
    program_origins: Mapping[str, str] = MappingProxyType({})
    """Of `command`; for the bundled worker by field of WorkerOptions."""
    files: tuple[Source, ...] = ()
    """The files that were searched for values; the first beats the second."""
    launch: Launch | None = None
    """The launcher that COMMAND began with."""

    def replace(self, origin: str, **values: Any) -> "Resolved":
        """Return the job with other values, all from one origin."""
        spec = msgspec.structs.replace(self.spec, **values)
        return msgspec.structs.replace(self, spec=spec, origins={**self.origins, **dict.fromkeys(values, origin)})


class _Program(msgspec.Struct, frozen=True):
    command: Command
    worker: WorkerOptions
    origins: Mapping[str, str]


def resolve(
    *,
    options: Mapping[str, Any],
    words: tuple[str, ...],
    job_file: Path | None,
    environ: Mapping[str, str],
    worker: Mapping[str, Any] | None = None,
    configuration: Sequence[Source] = (),
) -> Resolved:
    """Merge the sources and make the job of them.

    `options` are raw values of the command line by field of JobSpec, None or () where an option was not given, and the
    order of its set-up options; `worker` are those of WorkerOptions. `words` is COMMAND. `configuration` has the
    project file and the user file. A recorded job file has every value, so it is used without them. Raises UsageError
    with the origin of a wrong value.
    """
    job = job_files.read_job_file(job_file) if job_file else None
    is_recorded = job is not None and job.is_recorded
    files = (*([job] if job else []), *(() if is_recorded else configuration))
    environment = _read_environment(environ, without=("profile",) if is_recorded else ())
    asked = _typed(JOB_FIELDS, options), _typed(WORKER_FIELDS, worker or {})
    command_line = Layer(COMMAND_LINE, *asked, words, COMMAND_LINE, options.get("setup_order", ()))

    layers = _order_layers(files, environment, command_line)
    values = _merge(layer.options for layer in layers)
    executable = bool(_convert(JOB_FIELDS, values, "no-python").get("no_python"))
    program = _choose_program(layers, executable=executable)
    path = program.command.script
    if path and program.command.launch is None and (script := job_files.read_batch_script(path)):
        return _resolve_script(script, layers, program, files)
    if "launch_line" in command_line.options:
        raise UsageError("--launch-line is for a batch script of your own; leave it out")
    if not executable:
        values = _merge({**_implied_options(layer, program), **layer.options} for layer in layers)
    nearer = (environment.options.keys() | command_line.options.keys()) & {"python", *_ENVIRONMENTS}
    if job and is_recorded and nearer and "python" not in nearer and not job.table.keys() & _ENVIRONMENTS:
        values.pop("python", None)  # of the environment that another replaces
    if not values.keys() & {"python", *_ENVIRONMENTS}:
        needs = "msgspec" if program.worker.is_own_task else ""
        prefers = "" if needs or program.command.kind in ("script", "module") else "slurmddp"
        if found := python_env.find_python(environ, Path.cwd(), needs=needs, prefers=prefers):
            is_first = found.raw and values.keys() & {"module", "setup", "setup_file"}  # they may put another before it
            folder = Given(str(Path(str(found.raw)).parent.parent), found.origin)
            values |= {"venv": folder} if is_first else {"python": found}
    if job_file:
        name = Given(as_name(job_file.stem), DERIVED_NAMES[0])
    elif program.command.kind != "worker":
        name = Given(program.command.name, DERIVED_NAMES[1])
    else:
        name = Given(as_name(program.worker.task.rpartition(":")[2]), DERIVED_NAMES[2])
    values = {"job_name": name} | values

    order = _order_setup(layers, values)
    spec = _build_spec(values, program, order if "venv" in order or "venv" not in values else ("venv", *order))
    resolved = Resolved(spec, _origins(JOB_FIELDS, values), program.origins, files, program.command.launch)
    may_have_recipe = spec.recipe and spec.launcher != "manual" and not spec.resume_args and not spec.checkpoints
    if not may_have_recipe or not (recipe := recipes.find_recipe(program.command)):
        return resolved
    return resolved.replace(f"{RECIPE}{recipe.name}", resume_args=recipe.resume_args, checkpoints=recipe.checkpoints)


def _order_setup(layers: Sequence[Layer], values: Mapping[str, Given]) -> tuple[str, ...]:
    """Return the set-up options in the order in which they were given, those of the weakest source first."""
    order: list[str] = []
    for layer in layers:
        in_order = layer.setup_order or (
            name
            for name, given in layer.options.items()
            for _ in range(len(given.raw) if isinstance(given.raw, list | tuple) else 1)
        )
        order += (name for name in in_order if name in SETUP and values.get(name) is layer.options.get(name))
    return tuple(order)


def _resolve_script(
    script: BatchScript, layers: Sequence[Layer], program: _Program, files: tuple[Source, ...]
) -> Resolved:
    """Return the job of a user's own batch script, whose options come from its #SBATCH lines first of all."""
    *configured, environment, typed = layers
    asked = {**_asked_in_job_file(files), **typed.options}
    values = script_options.merge_options(script, _merge(one.options for one in configured), environment.options, asked)
    name = PurePath(script.path).stem if not script.get("job-name") else script.job_name
    values = {"job_name": Given(as_name(name), DERIVED_NAMES[3]), **values}
    script = script_options.with_header(script, values, _convert(JOB_FIELDS, values))
    spec = msgspec.structs.replace(_build_spec(values, program), script=script)
    return Resolved(spec, _origins(JOB_FIELDS, values), program.origins, files)


def _asked_in_job_file(files: Sequence[Source]) -> dict[str, Given]:
    """Return the values of a job file that are as good as typed; a recorded one has all, with their origins."""
    job = next((one for one in files if one.kind == "job file"), None)
    if job is None:
        return {}
    origins = job.table["recorded"].get("origins", {}) if job.is_recorded else {}
    options = next(job.layers(None)).options
    return {
        name: Given(given.raw, f"--{name.replace('_', '-')}")
        for name, given in options.items()
        if not job.is_recorded or str(origins.get(name.replace("_", "-"), "")).startswith("--")
    }


def _build_spec(values: Mapping[str, Given], program: _Program, setup_order: tuple[str, ...] = ()) -> JobSpec:
    """Return the job. Raises UsageError, with the file or variable that a wrong value is from, and for unused ones."""
    converted = _convert(JOB_FIELDS, values)
    try:
        words = () if program.command.kind == "worker" else program.command.words
        spec = JobSpec(**converted, command=words, worker=program.worker, setup_order=setup_order)
    except UsageError as error:
        origins = {name: given.origin for name, given in values.items()}
        raise UsageError(with_origin(str(error), origins)) from error
    for key, needed, is_given in (
        ("container-mount", "--container", spec.container),
        ("container-runtime", "--container", spec.container),
        ("max-requeues", "--requeue", spec.requeue),
    ):
        given = values.get(JOB_FIELDS[key].name)
        if given and given.origin == f"--{key}" and not is_given:
            raise UsageError(f"--{key} needs {needed}; give that, too, or leave --{key} out")
    return spec


def with_origin(message: str, origins: Mapping[str, str]) -> str:
    """Return a message on an option with the file or the variable where its value was given."""
    said = message.replace("job name", "--job-name:", 1) if message.startswith("job name") else message
    found = re.match("--([a-z-]+)", said)
    field = JOB_FIELDS.get(found[1]) if found else None
    origin = origins.get(field.name, "") if field else ""
    if not found or not re.match(_FILE_OR_VARIABLE, origin):
        return message
    rest = said[found.end() :]
    return f"{origin}{rest}" if rest.startswith(":") else f"{origin}: {message}"


def _order_layers(files: Sequence[Source], environment: Layer, typed: Layer) -> list[Layer]:
    """Return the layers of the files, and those that beat the files, the weakest first.

    A profile beats the plain values of its own file; one that was typed beats those of all files.
    """
    plain = [layer for file in reversed(files) for layer in file.layers(None)]
    profile = _merge(layer.options for layer in (*plain, environment, typed)).get("profile")
    name = _check_profile(profile, files) if profile else None
    layers = [list(file.layers(name)) for file in reversed(files)]
    if "profile" in typed.options:
        layers = [[several[0] for several in layers], *(several[1:] for several in layers)]
    return [*(one for several in layers for one in several), environment, typed]


def _merge(layers: Iterable[Mapping[str, Given]]) -> dict[str, Given]:
    """Return the values of all layers; a later layer beats an earlier one."""
    return {name: given for layer in layers for name, given in layer.items()}


def _check_profile(given: Given, files: Sequence[Source]) -> str:
    """Return the name of the chosen profile. Raises UsageError when no file has it."""
    name: str = convert(JOB_FIELDS["profile"], given.raw, given.origin)
    known = list(dict.fromkeys(profile for file in files for profile in file.profiles))
    if not known:
        where = " or ".join(str(file.path) for file in files) or PROJECT_FILE
        table = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else "NAME"
        raise UsageError(
            f"{given.origin}: there is no profile {quote_value(name)}; write a table [profile.{table}] into {where}"
        )
    if name not in known:
        raise unknown(name, known, given.origin, what="profile")
    return name


def _read_environment(environ: Mapping[str, str], without: Sequence[str] = ()) -> Layer:
    """Return the values of the environment; our own variable beats sbatch's. A list has an item a line."""
    options = {}
    for key, field in JOB_FIELDS.items():
        for variable in (field.option.variable, *field.variables):
            if (text := environ.get(variable)) and key not in without:
                options[field.name] = Given(tuple(text.splitlines()) if field.is_list else text, variable)
    return Layer(place="the environment", options=options)


def _typed(fields: Mapping[str, Field], given: Mapping[str, Any]) -> dict[str, Given]:
    names = ((f"--{key}", field.name) for key, field in fields.items())
    return {name: Given(given[name], option) for option, name in names if given.get(name) not in (None, ())}


def _choose_program(layers: Sequence[Layer], *, executable: bool) -> _Program:
    """Return the strongest command; where there is none, the bundled worker with the options of all layers.

    Raises UsageError for options of the bundled worker that were given to another command.
    """
    worker_words = [given.origin for given in layers[-1].worker.values()]
    for layer in reversed(layers):
        command = parse(layer.command, executable=executable)
        if command.kind != "worker" and worker_words:
            first, typed = command.words[0], worker_words[0]
            why = f"COMMAND is {quote_value(first)}" if layer.place == COMMAND_LINE else f"{layer.place} has a command"
            raise UsageError(
                f"{quote_value(typed)} is for the bundled worker, but {why}; write the script and then its options: "
                f"{shlex.quote(first)} {typed} ..."
            )
        if command.kind != "worker":
            return _Program(command, WorkerOptions(), {"command": layer.command_origin})
        worker_words += command.words
    found: dict[str, Given] = {}
    for layer in layers:
        origin = "" if layer.place == COMMAND_LINE else layer.command_origin
        found |= {**layer.worker, **parse_words(layer.command, origin)}
    return _Program(Command(), WorkerOptions(**_convert(WORKER_FIELDS, found)), _origins(WORKER_FIELDS, found))


def _implied_options(layer: Layer, program: _Program) -> dict[str, Given]:
    """Return the options that the program of this layer implies: the Python and the nodes that COMMAND begins with.

    Raises UsageError when the layer has another number of nodes.
    """
    implied: dict[str, Given] = {}
    if not layer.command or program.origins.get("command") != layer.command_origin:
        return implied
    if program.command.python:
        implied["python"] = Given(program.command.python, "COMMAND")
    launch = program.command.launch
    if launch and launch.nodes:
        implied["nodes"] = Given(launch.nodes, f"the options of {launch.name}")
        given = layer.options.get("nodes", implied["nodes"])
        if str(given.raw) != str(launch.nodes):
            raise UsageError(
                f"{given.origin} {given.raw}, but {launch.name} asks for {launch.nodes} nodes; give one of them"
            )
    return implied


def _convert(fields: Mapping[str, Field], values: Mapping[str, Given], *keys: str) -> dict[str, Any]:
    """Return the values of these keys, of all without keys, by field; a `~` that begins a path is expanded."""
    converted = {}
    for key in keys or fields:
        if given := values.get(fields[key].name):
            value = convert(fields[key], given.raw, given.origin)
            is_path = fields is JOB_FIELDS and key in PATH_KEYS and isinstance(value, str)
            converted[fields[key].name] = os.path.expanduser(value) if is_path else value  # noqa: PTH111 keeps ./
    return converted


def _origins(fields: Mapping[str, Field], values: Mapping[str, Given]) -> dict[str, str]:
    return {field.name: values[field.name].origin if field.name in values else BUILT_IN for field in fields.values()}


def find_runs_dir(configuration: Sequence[Source], environ: Mapping[str, str]) -> str:
    """Return the folder of the runs, for commands that describe no job."""
    layers = _order_layers(configuration, _read_environment(environ), Layer(COMMAND_LINE, {}))
    values = _merge(layer.options for layer in layers)
    return str(_convert(JOB_FIELDS, values, "runs-dir").get("runs_dir", JOB_FIELDS["runs-dir"].default))


def find_remote(words: Sequence[str], environ: Mapping[str, str], typed: Mapping[str, Any]) -> dict[str, Given]:
    """Return `host`, if there is one, and `remote-dir`: typed, or as configured, in a profile that the words choose."""
    files = job_files.find_configuration(Path.cwd()).files
    profile = dict(pairwise(part for word in words for part in word.split("=", 1))).get("--profile")
    asked = {"host": typed["host"], "remote-dir": typed["remote_dir"]}
    asked |= {"profile": profile} if any(profile in file.profiles for file in files) else {}
    given = {key: Given(value, f"--{key}") for key, value in asked.items() if value is not None}
    layers = _order_layers(files, _read_environment(environ), Layer(COMMAND_LINE, given))
    found = {"remote-dir": Given("slurmddp", BUILT_IN)} | _merge(layer.options for layer in layers)
    return {key: found[key] for key in REMOTE_KEYS if key in found}


def unknown_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that begins with SLURMDDP_ and sets nothing, with the options that are spelled alike."""
    known = {variable for field in JOB_FIELDS.values() for variable in field.variables}
    for name in environ:
        if name.startswith(_PREFIX) and not name.startswith("SLURMDDP_TESTS_") and name not in known | NAMES:
            ends = {variable.removeprefix(_PREFIX): variable for variable in sorted(known)}
            hint = suggest(name.removeprefix(_PREFIX), ends, "", cutoff=0.6, show=ends.__getitem__)
            yield name, "; ".join(filter(None, ("no option has this variable", hint)))


def build_record(resolved: Resolved, *, directory: str, version: str) -> dict[str, Any]:
    """Return the tables of a job file that repeats the job: every value, where each came from, and the Python."""
    spec = resolved.spec
    values = {key: getattr(spec, field.name) for key, field in JOB_FIELDS.items() if key not in _ONCE}
    table: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value is not None
    }
    if spec.command:
        table["command"] = [  # TOML holds no bytes that are no text
            list(word.encode("utf-8", "surrogateescape")) if _NO_TEXT.search(word) else word for word in spec.command
        ]
    else:
        asked = {key: getattr(spec.worker, field.name) for key, field in WORKER_FIELDS.items()}
        table["worker"] = {key: value for key, value in asked.items() if value is not None}
    if not table.keys() & {"python", *_ENVIRONMENTS} and not spec.has_setup:
        table["python"] = sys.executable
    origins = {key: resolved.origins[field.name] for key, field in JOB_FIELDS.items()}
    order = {"setup-order": list(spec.setup_order)} if spec.setup_order else {}
    table["recorded"] = {"version": version, "directory": directory, **order, "origins": origins}
    return table
