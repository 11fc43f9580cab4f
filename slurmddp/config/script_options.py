"""The options of a job with a batch script of the user's own: what beats what, and what its header gets. No I/O."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from slurmddp.config.batch_script import BatchScript
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.option_types import Given, convert
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_QUEUE: Final = ("time", "partition", "account", "qos", "constraint", "reservation")
_SIZES: Final = ("nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "mem", "nodelist", "exclude")
_OF_SBATCH: Final = ("job-name", "dependency", "hold", *_SIZES, *_QUEUE)
"""Options that become lines of the header."""
_OF_THE_SUPERVISOR: Final = (
    *("requeue", "signal-lead", "max-restarts", "max-requeues", "hang-timeout", "notify"),
    *("runs-dir", "supervisor-python", "profile"),
)
_HERE: Final = ("sbatch", "reset", "checkpoints", "launch-line")
_READ: Final = ("nodes", "ntasks-per-node", "cpus-per-task", "time", "partition")
"""Options whose values slurmddp takes from the #SBATCH lines, where they are as plain as it knows them."""


def merge_options(
    script: BatchScript, configured: Mapping[str, Given], environment: Mapping[str, Given], typed: Mapping[str, Given]
) -> dict[str, Given]:
    """Return the values of a job: what was typed beats sbatch's variables, these the script, that the configuration.

    Raises UsageError for an option that means nothing for a script, which sets up and launches by itself.
    """
    for key, field in JOB_FIELDS.items():
        if field.name in typed and key not in (*_OF_SBATCH, *_OF_THE_SUPERVISOR, *_HERE):
            given = f"{typed[field.name].origin}: {quote_value(script.path)} is a batch script"
            if key == "spares":
                raise UsageError(f"{given}, whose own launch cannot be told which nodes to use; leave it out")
            raise UsageError(f"{given}, which says this by itself; write it there")
    usual = {JOB_FIELDS[key].name for key in (*_QUEUE, *_OF_THE_SUPERVISOR)}
    variables = {name: given for name, given in environment.items() if given.origin.startswith("SBATCH_")}
    weak = {name: given for name, given in {**configured, **environment}.items() if name in usual}
    return {**weak, **_own_values(script), **variables, **typed}


def with_header(script: BatchScript, values: Mapping[str, Given], converted: Mapping[str, Any]) -> BatchScript:
    """Return the script with the options that its header gets: those that it does not have by itself."""
    own = {given.origin for given in _own_values(script).values()}
    header: list[tuple[str, str | None]] = []
    for key in _OF_SBATCH:
        name = JOB_FIELDS[key].name
        if name not in values or values[name].origin in own or values[name].origin.startswith("the "):
            continue
        if values[name].origin in (f"--{key}", "--name") or not script.get(key):
            header.append(_header_option(script, key, converted[name]))
    for item in converted.get("sbatch", ()):
        name, equals, value = item.partition("=")
        header.append((name, value if equals else None))
    if "requeue" in values or not script.get("requeue", "no-requeue"):
        header.append(("requeue" if converted.get("requeue", True) else "no-requeue", None))
    if not script.get("open-mode"):
        header.append(("open-mode", "append"))
    return msgspec.structs.replace(script, header=tuple(one for one in header if one[0]))


def _header_option(script: BatchScript, key: str, value: Any) -> tuple[str, str | None]:
    """Return an option as the script spells it: a script that asks for GPUs by --gres gets that line again."""
    if key == "hold":
        return ("hold" if value else ""), None
    gres = script.get("gres")
    if key == "gpus-per-node" and gres and re.match("gpu", gres.value or ""):
        return "gres", f"gpu:{value}"
    return key, str(value)


def _own_values(script: BatchScript) -> dict[str, Given]:
    found = {}
    for key in _READ:
        if (own := script.get(key)) and own.value:
            given = Given(own.value, f"{script.path}, line {own.line}")
            with suppress(UsageError):  # `-N 2-4`: it is sbatch that reads it
                convert(JOB_FIELDS[key], given.raw, given.origin)
                found[JOB_FIELDS[key].name] = given
    return found
