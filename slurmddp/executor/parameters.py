"""Converts submitit's parameters into a JobSpec and the callables' part of the script. Pure."""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from submitit.slurm import slurm as theirs

from slurmddp.config.command import as_name
from slurmddp.config.foreign_options import SWITCHES_OF_SBATCH
from slurmddp.config.job_spec import ALIASES, JOB_FIELDS, JobSpec
from slurmddp.config.option_types import convert, unknown
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

BODY: Final = ("-m", "slurmddp.executor.run_call")
DEFAULTS: Final = theirs._get_default_parameters()  # noqa: SLF001 - a test checks that submitit has the three names
"""submitit's parameters of a Slurm job, each also with the prefix `slurm_`."""
GENERIC: Final = dict[str, str](theirs.SlurmExecutor._equivalence_dict(), stderr_to_stdout="stderr_to_stdout")  # type: ignore[arg-type]  # noqa: SLF001
"""submitit's names for every cluster, with Slurm's."""
_FIELDS: Final = {field.name: field for field in JOB_FIELDS.values()}
_SPECIAL: Final = (
    *("num_gpus", "gpus_per_task", "teardown", "signal_delay_s", "array_parallelism", "stderr_to_stdout"),
    *("additional_parameters", "srun_args", "use_srun"),
)
"""Parameters with a special meaning. Others are options of slurmddp, or are passed to sbatch unchanged."""
_REFUSED: Final = (
    *("launcher", "python", "supervisor-python", "container", "container-runtime", "container-mount", "no-python"),
    *("wrap", "launch-line", "template", "snapshot", "reset", "runs-dir", "profile", "avoid"),
)
"""Options of a job that a call cannot have."""
_NAMES: Final = {
    **{key: f"slurm_additional_parameters: {key.replace('-', '_')}" for key in JOB_FIELDS},
    **{key.replace("_", "-"): f"slurm_{key}" for key in DEFAULTS},
    **{key.replace("_", "-"): name for name, key in GENERIC.items() if key != "mem"},  # mem_gb has another unit
    "signal-lead": "slurm_signal_delay_s",
    "python": "Executor(python=...)",
}
"""The parameter for each option of a job."""


def select_known(given: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Return the given values by Slurm's names, without None and without those for other clusters.

    `others` are the prefixes of other clusters. Slurm's own name has precedence over the general name. Raises
    UsageError for a name that submitit does not have, with similar names.
    """
    found = {}
    for name in sorted(given, key=lambda name: (name.removeprefix("slurm_") not in GENERIC, name.startswith("slurm_"))):
        plain, value = name.removeprefix("slurm_"), given[name]
        if name.partition("_")[0] in others or value is None:
            continue
        if plain not in DEFAULTS and plain not in GENERIC:
            allowed = [*GENERIC, *(f"slurm_{key}" for key in DEFAULTS if key not in GENERIC.values())]
            raise unknown(name, allowed, "update_parameters", what="parameter")
        found[GENERIC.get(plain, plain)] = _gigabytes(value) if plain == "mem_gb" else value
    return found


def name_parameters(message: str) -> str:
    """Return a message on options of a job with the names of the parameters: `nodes=2` for `--nodes 2`."""
    option = rf"--({'|'.join(_NAMES)})(?![\w-])( (?=\d))?"
    return re.sub(option, lambda found: _NAMES[found[1]] + "=" * bool(found[2]), message)


def build_spec(parameters: Mapping[str, Any], *, python: str | None, max_restarts: int) -> JobSpec:
    """Return the job of these parameters. Raises UsageError for wrong values."""
    tasks = max(1, _whole("tasks_per_node", parameters.get("ntasks_per_node", 1)))
    further = _further(parameters.get("additional_parameters", {}))
    if "gres" in further:
        parameters = {**parameters, "gres": further.pop("gres")}
    asked = {
        **{key: value for key, value in parameters.items() if key in _FIELDS},
        "job_name": as_name(str(parameters.get("job_name", "submitit"))),
        "time": parameters.get("time", DEFAULTS["time"]),
        "ntasks_per_node": tasks,
        "gpus_per_node": _gpus(parameters, tasks),
        "mem": str(parameters["mem"]).upper().removesuffix("B") if "mem" in parameters else None,
        "signal_lead": parameters.get("signal_delay_s"),
        "setup": tuple(_lines("setup", parameters)),
        "sbatch": _sbatch(parameters, {key: value for key, value in further.items() if key not in JOB_FIELDS}),
        "python": shlex.split(python)[0] if python else None,
        "max_restarts": max_restarts,
        **{JOB_FIELDS[key].name: value for key, value in further.items() if key in JOB_FIELDS},
    }
    return JobSpec(
        command=BODY,
        **{
            name: convert(_FIELDS[name], value, f"update_parameters: --{_FIELDS[name].key}")
            for name, value in asked.items()
            if value is not None
        },
    )


def _sbatch(parameters: Mapping[str, Any], further: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that are passed to sbatch unchanged, each KEY or KEY=VALUE."""
    given = {key: value for key, value in parameters.items() if key not in {*_FIELDS, *_SPECIAL}}
    items = {key.replace("_", "-"): value for key, value in given.items() if not _is_gpu(key, value)} | dict(further)
    if wrong := next((key for key, value in items.items() if value is False and key not in SWITCHES_OF_SBATCH), None):
        raise UsageError(f"update_parameters: {wrong}: False is no value of it; give another, or leave {wrong} out")
    return tuple(
        key if value is True else f"{key}={value}"
        for key, value in items.items()
        if value is not None and value is not False
    )


def build_callables(
    parameters: Mapping[str, Any], *, folder: str, python: str | None, count: int | None
) -> dict[str, Any]:
    """Return the callables' part of the script; `count` is the number of the array's tasks, None for one job.

    Raises UsageError for wrong values.
    """
    if parameters.get("use_srun", True) is not True:
        raise UsageError(
            "slurm_use_srun=False: only ranks that srun starts get the signal before the end; leave it out (a job can "
            "still submit others)"
        )
    parallel = _whole("slurm_array_parallelism", parameters.get("array_parallelism", DEFAULTS["array_parallelism"]))
    return {
        "folder": folder,
        "array": f"0-{count - 1}%{min(count, parallel)}" if count else "",
        "python": python or shlex.quote(sys.executable),
        "errors_apart": not parameters.get("stderr_to_stdout", False),
        "srun": split_words("srun_args", parameters),
        "teardown": _lines("teardown", parameters),
    }


def _gpus(parameters: Mapping[str, Any], tasks: int) -> str | None:
    """Return the GPUs of a node, not of a task: NCCL cannot use a GPU that Slurm hides from the other tasks."""
    asked = parameters.get("num_gpus", parameters.get("gpus_per_node"))
    if "gpus_per_task" in parameters:
        asked = _whole("slurm_gpus_per_task", parameters["gpus_per_task"]) * tasks
    elif _is_gpu("gres", parameters.get("gres", "")):
        asked = parameters["gres"].partition(":")[2] or 1
    return None if asked in (None, 0, "0") else str(asked)


def _is_gpu(key: str, value: Any) -> bool:
    return key == "gres" and re.fullmatch(r"gpu(:.*)?", str(value)) is not None


def _gigabytes(value: Any) -> str:
    """Return gigabytes, which may be a fraction, in Slurm's form of a size."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"update_parameters: mem_gb: {quote_value(value)} is not a number of gigabytes")
    return f"{int(value)}G" if value == int(value) else f"{int(value * 1024)}M"


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"update_parameters: {name}: {quote_value(value)} is not a whole number")
    return value


def _further(given: Any) -> dict[str, Any]:
    """Return the additional parameters by the names of options."""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"update_parameters: additional_parameters: {quote_value(given)} is not a dict of sbatch's options"
        )
    named = {ALIASES.get(key := str(name).replace("_", "-"), key): value for name, value in given.items()}
    for key, value in named.items():
        if key in _REFUSED and (key, value) != ("launcher", "srun"):
            how = "each rank is a task of srun, in the Python that submits or that of Executor(python=...)"
            raise UsageError(f"update_parameters: additional_parameters: {key} is not an option of an executor: {how}")
    return named


def _lines(name: str, parameters: Mapping[str, Any]) -> list[str]:
    given = parameters.get(name, ())
    texts = split_words(name, {name: [given] if isinstance(given, str) else given})
    return [line for text in texts for line in text.splitlines() if line]


def split_words(name: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a list of strings; split a single text as a shell would."""
    given = parameters.get(name, ())
    if not isinstance(given, Iterable) or not all(isinstance(word, str) for word in given):
        raise UsageError(f"update_parameters: {name}: {quote_value(given)} is not a list of strings")
    try:
        return tuple(shlex.split(given) if isinstance(given, str) else given)
    except ValueError as error:
        raise UsageError(
            f"update_parameters: {name}: {quote_value(given)} cannot be split; close the quotes"
        ) from error
