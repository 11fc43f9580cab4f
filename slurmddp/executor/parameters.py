"""submitit's names for what a job asks for -> JobSpec, and what its script has beside that. Pure."""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from slurmddp.config.command import as_name
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.options import convert, unknown
from slurmddp.errors import UsageError
from slurmddp.script.render import Callables
from slurmddp.text import shown

BODY: Final = ("-m", "slurmddp.executor.run_call")
DEFAULT_MINUTES: Final = 5
"""submitit's own default."""

GENERIC: Final[Mapping[str, str]] = {
    "name": "job_name",
    "timeout_min": "time",
    "mem_gb": "mem",
    "nodes": "nodes",
    "cpus_per_task": "cpus_per_task",
    "gpus_per_node": "gpus_per_node",
    "tasks_per_node": "ntasks_per_node",
    "stderr_to_stdout": "stderr_to_stdout",
}
"""What submitit calls the same on every cluster."""
_FIELDS = (
    *("job_name", "nodes", "ntasks_per_node", "cpus_per_task", "gpus_per_node", "partition", "time", "mem", "qos"),
    *("account", "constraint", "exclude", "nodelist", "dependency"),
)
"""Those that are our options, too."""
_SBATCHS = (
    *("cpus_per_gpu", "mem_per_gpu", "mem_per_cpu", "comment", "gres", "mail_type", "mail_user", "exclusive"),
    "wckey",
)
"""Those that sbatch gets as they are."""
_OURS = (
    *("num_gpus", "gpus_per_task", "setup", "teardown", "signal_delay_s", "array_parallelism", "stderr_to_stdout"),
    *("additional_parameters", "srun_args", "use_srun"),
)
"""Those with a meaning of their own."""
_ELSEWHERE: Final[Mapping[str, str]] = {
    "launcher": "each rank is a task that srun starts",
    **dict.fromkeys(
        ("container", "container-runtime", "container-mount"),
        "the ranks run in the Python that submits, or Executor(python=...)",
    ),
    **dict.fromkeys(
        ("template", "no-python", "snapshot", "reset", "runs-dir", "profile"), "an executor has its own way"
    ),
    "python": "give it as Executor(python=...)",
}
"""Options of a job that a call has not, and why."""
SLURMS: Final = (*_FIELDS, *_SBATCHS, *_OURS)
"""submitit's parameters of a Slurm job; `slurm_` may stand before each."""
ARRAY_PARALLELISM: Final = 256
"""submitit's own default."""


def known(given: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Return what was given by Slurm's names, without None and what is meant for other clusters.

    `others` are the prefixes of those; Slurm's own name counts more than the one that is the same on every cluster.
    Raises UsageError for a name that submitit has not, with the near ones.
    """
    found = {}
    for name in sorted(given, key=lambda name: (name.removeprefix("slurm_") not in GENERIC, name.startswith("slurm_"))):
        plain, value = name.removeprefix("slurm_"), given[name]
        if name.partition("_")[0] in others or value is None:
            continue
        if plain not in SLURMS and plain not in GENERIC:
            allowed = [*GENERIC, *(f"slurm_{key}" for key in SLURMS if key not in GENERIC.values())]
            raise unknown(name, allowed, "update_parameters", what="parameter")
        found[GENERIC.get(plain, plain)] = _gigabytes(value) if plain == "mem_gb" else value
    return found


def spec_of(parameters: Mapping[str, Any], *, python: str | None, max_restarts: int) -> JobSpec:
    """Return the job that the parameters ask for. Raises UsageError for values that cannot be."""
    tasks = max(1, _whole("tasks_per_node", parameters.get("ntasks_per_node", 1)))
    further = _further(parameters.get("additional_parameters", {}))
    _check_options(further)
    if "gres" in further:
        parameters = {**parameters, "gres": further.pop("gres")}
    asked = {
        **{key: parameters[key] for key in _FIELDS if key in parameters},
        "job_name": as_name(str(parameters.get("job_name", "submitit"))),
        "time": parameters.get("time", DEFAULT_MINUTES),
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
    fields = {field.name: field for field in JOB_FIELDS.values()}
    return JobSpec(
        command=BODY,
        **{
            name: convert(fields[name], value, f"update_parameters: {name}")
            for name, value in asked.items()
            if value is not None
        },
    )


def _check_options(further: Mapping[str, Any]) -> None:
    for key in further:
        if key in _ELSEWHERE and (key, further[key]) != ("launcher", "srun"):
            raise UsageError(
                f"update_parameters: additional_parameters: {key} is not for an executor: {_ELSEWHERE[key]}"
            )


def _sbatch(parameters: Mapping[str, Any], further: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what sbatch gets as it is, KEY or KEY=VALUE each."""
    given = {key: parameters[key] for key in _SBATCHS if key in parameters and not _is_gpu(key, parameters[key])}
    items = {key.replace("_", "-"): value for key, value in given.items()} | dict(further)
    return tuple(
        key if value is True else f"{key}={value}"
        for key, value in items.items()
        if value is not None and value is not False
    )


def callables_of(parameters: Mapping[str, Any], *, folder: str, python: str | None, count: int | None) -> Callables:
    """Return what the script has beside the job's own; `count` is the number of the array's jobs, None without one.

    Raises UsageError for values that cannot be.
    """
    if parameters.get("use_srun", True) is not True:
        raise UsageError(
            "slurm_use_srun=False: the notice before the end reaches ranks that srun has started; leave it out (a job "
            "may submit others all the same)"
        )
    parallel = _whole("slurm_array_parallelism", parameters.get("array_parallelism", ARRAY_PARALLELISM))
    return Callables(
        folder=folder,
        array=f"0-{count - 1}%{min(count, parallel)}" if count else "",
        python=python or shlex.quote(sys.executable),
        errors_apart=not parameters.get("stderr_to_stdout", False),
        srun=_words("srun_args", parameters),
        teardown=tuple(_lines("teardown", parameters)),
    )


def _gpus(parameters: Mapping[str, Any], tasks: int) -> str | None:
    """Return the GPUs of a node, however they are asked for: a GPU bound to each task is out of its peers' reach."""
    asked = parameters.get("num_gpus", parameters.get("gpus_per_node"))
    if "gpus_per_task" in parameters:
        asked = _whole("slurm_gpus_per_task", parameters["gpus_per_task"]) * tasks
    elif _is_gpu("gres", parameters.get("gres", "")):
        asked = parameters["gres"].partition(":")[2] or 1
    return None if asked in (None, 0, "0") else str(asked)


def _is_gpu(key: str, value: Any) -> bool:
    return key == "gres" and re.fullmatch(r"gpu(:.*)?", str(value)) is not None


def _gigabytes(value: Any) -> str:
    """Return gigabytes, which may be a fraction, as a size of Slurm's."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"update_parameters: mem_gb: {shown(value)} is not a number of gigabytes")
    return f"{int(value)}G" if value == int(value) else f"{int(value * 1024)}M"


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"update_parameters: {name}: {shown(value)} is not a whole number")
    return value


def _further(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError(f"update_parameters: additional_parameters: {shown(given)} is not a dict of sbatch's options")
    return {str(key).replace("_", "-"): value for key, value in given.items()}


def _lines(name: str, parameters: Mapping[str, Any]) -> list[str]:
    given = parameters.get(name, ())
    texts = _words(name, {name: [given] if isinstance(given, str) else given})
    return [line for text in texts for line in text.splitlines() if line]


def _words(name: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a list of texts; one text is taken apart as a shell would."""
    given = parameters.get(name, ())
    if not isinstance(given, Iterable) or not all(isinstance(word, str) for word in given):
        raise UsageError(f"update_parameters: {name}: {shown(given)} is not a list of texts")
    try:
        return tuple(shlex.split(given) if isinstance(given, str) else given)
    except ValueError as error:
        raise UsageError(
            f"update_parameters: {name}: {shown(given)} cannot be taken apart; close the quotes"
        ) from error
