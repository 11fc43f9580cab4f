"""`slurmddp config`: show every value of a job, and its source."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from slurmddp.cli.job_command import JobCommand, find_configuration, resolve_job
from slurmddp.cli.request_options import fill, name_run
from slurmddp.cli.screen import print_result
from slurmddp.cluster.request import Request
from slurmddp.config import configuration_files, job_files
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.resolve import BUILT_IN, find_remote, unknown_variables
from slurmddp.text import escape_text, format_table, mask_secrets, wrap_text

_RECORDED: Final = "the job file is the record of a run, which has every value"

Entry = dict[str, Any]
"""A value, without secrets, and its origin."""


@click.command(cls=JobCommand)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def config(*, as_json: bool, **parameters: Any) -> None:
    """Print every value of a job, and its source; nothing is written or submitted.

    The arguments are those of `submit`. The value of a variable or option is hidden if its name looks like a secret.
    """
    found = find_configuration()
    request = name_run(fill(resolve_job(parameters, found.files)))
    report = _as_json(request, found)
    print_result(report, _format_report(report), as_json=as_json)


def _as_json(request: Request, found: job_files.Configuration) -> dict[str, Any]:
    resolved, cluster = request.resolved, request.cluster
    unused = [file for file in found.files if file not in resolved.files]
    ignored = [*((str(file.path), _RECORDED) for file in unused), *((str(path), why) for path, why in found.ignored)]
    ignored += list(unknown_variables(os.environ))
    spec, origins = resolved.spec, resolved.origins
    values = {key: _entry(getattr(spec, field.name), origins[field.name]) for key, field in JOB_FIELDS.items()}
    for key, value in (("ntasks-per-node", spec.tasks_per_node), ("signal-lead", spec.lead_s)):
        if values[key]["value"] is None:  # it is computed from others
            values[key]["value"] = value
    remote = find_remote(["--profile", spec.profile or ""], os.environ, click.get_current_context().find_root().params)
    values |= {key: _entry(given.raw, given.origin) for key, given in remote.items() if "host" in remote}
    if spec.avoided:
        origin = f"{origins['exclude']}, and " * bool(spec.exclude) + f"what speaks against {', '.join(spec.avoided)}"
        values["exclude"] = _entry(dict(spec.header)["exclude"], origin)
    own = resolved.program_origins
    program: dict[str, Any] = {}
    if spec.command:
        program["command"] = _entry(spec.command, own["command"])
    else:
        worker = {name: getattr(spec.worker, name) for name in own} | {"data": spec.worker.source}
        program["worker"] = {name.replace("_", "-"): _entry(value, own[name]) for name, value in worker.items()}
    return {
        "files": [{"kind": file.kind, "path": str(file.path)} for file in resolved.files],
        "ignored": [{"name": name, "why": why} for name, why in ignored],
        "cluster": cluster.name if cluster else None,
        "silence": request.silence or None,
        "values": values,
        "computed": [*request.computed, *["exclude"] * bool(spec.avoided)],
        **program,
    }


def _entry(value: Any, origin: str) -> Entry:
    masked = mask_secrets(value)
    return {"value": list(masked) if isinstance(masked, tuple) else masked, "origin": origin}


def _format_report(report: Mapping[str, Any]) -> Iterator[str]:
    for file in report["files"]:
        yield f"read     {file['kind']} {escape_text(_shorten_path(file['path']))}"
    for file in report["ignored"]:
        yield from wrap_text(f"{_shorten_path(file['name'])}: {file['why']}", "ignored  ")
    if report["silence"]:
        yield from wrap_text(f"cluster: {report['silence']}", "no       ")
    own = configuration_files.user_file()
    if not own.exists():
        yield f"no       user file {escape_text(_shorten_path(str(own)))}"
    values = report["values"] | ({"COMMAND": report["command"]} if "command" in report else {})
    values |= {f"worker.{key}": entry for key, entry in report.get("worker", {}).items()}
    absent = [key for key, entry in values.items() if entry["origin"] == BUILT_IN and entry["value"] in (None, [])]
    shown = sorted((key for key in values if key not in absent), key=lambda key: values[key]["origin"] == BUILT_IN)
    yield ""
    yield from format_table([row for key in shown for row in _rows(key, values[key], report["files"])])
    yield ""
    yield from wrap_text(", ".join(absent), "not set: ")


def _rows(key: str, entry: Entry, files: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each item of a value; the first has the name and the origin."""
    value, origin = entry["value"], entry["origin"].removesuffix(f", key {key.lower().removeprefix('worker.')}")
    for file in files:
        origin = origin.replace(file["path"], _shorten_path(file["path"]))
    first, *others = map(_show, value if isinstance(value, list) and value else [value])
    yield key, first, origin
    yield from (("", item, "") for item in others)


def _show(item: Any) -> str:
    return str(item).lower() if isinstance(item, bool) else "(empty)" if item in ("", []) else str(item)


def _shorten_path(path: str) -> str:
    """Return the shortest form of a path: absolute, or relative to the working or the home directory."""
    home = os.path.expanduser("~")  # noqa: PTH111 there may be no home
    below = f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path
    return min((path, os.path.relpath(path), below), key=len)
