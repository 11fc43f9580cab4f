"""`slurmddp config`: show every value of a job, and its source."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from slurmddp.cli.job_command import JobCommand, find_configuration, resolve_job
from slurmddp.cli.request_options import fill
from slurmddp.cluster.request import Request
from slurmddp.config import job_files
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.resolve import BUILT_IN, unknown_variables
from slurmddp.text import WIDTH, escape_text, mask_secrets, wrap_text

_VALUE_WIDTH: Final = 24
_RECORDED: Final = "the job file is the record of a run, which has every value"

Entry = dict[str, Any]
"""A value, without secrets, and its origin."""


@click.command(cls=JobCommand)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def config(job_file: Path | None, words: tuple[str, ...], *, as_json: bool, **parameters: Any) -> None:
    """Print every value of a job, and its source; nothing is written or submitted.

    The arguments are those of `submit`. The value of a variable or option is hidden if its name looks like a secret.
    """
    found = find_configuration()
    request = fill(resolve_job(job_file, words, parameters, found.files))
    report = _as_json(request, found)
    click.echo(json.dumps(report) if as_json else "\n".join(_format_report(report)))


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
        "computed": list(request.computed),
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
    own = job_files.user_file()
    if not own.exists():
        yield f"no       user file {escape_text(_shorten_path(str(own)))}"
    values = report["values"] | ({"COMMAND": report["command"]} if "command" in report else {})
    yield from _format_sections("", values, report)
    yield from _format_sections("[worker] ", report.get("worker", {}), report)


def _format_sections(title: str, values: Mapping[str, Entry], report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values by source (given, from the cluster, built-in), then the names of those without a value."""
    absent = [key for key, entry in values.items() if entry["origin"] == BUILT_IN and entry["value"] in (None, [])]
    parts: dict[str, list[str]] = {"given": [], "from the cluster": [], "built-in": []}
    for key, entry in values.items():
        if key not in absent:
            built_in = entry["origin"] == BUILT_IN
            parts["from the cluster" if key in report["computed"] else "built-in" if built_in else "given"].append(key)
    width = max(map(len, values), default=0)
    for part, keys in parts.items():
        yield from ("", f"{title}{part}") if keys else ()
        yield from _format_values({key: values[key] for key in keys}, width, report["files"])
    if absent:
        yield ""
        yield from wrap_text(", ".join(absent), f"{title}not set: ")


def _format_values(values: Mapping[str, Entry], width: int, files: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the values, one item per line, each with its origin after it, or below it if the line would be too long."""
    texts: dict[str, list[str]] = {}
    for key, entry in values.items():
        value = entry["value"]
        items = value if isinstance(value, list) and value else [value]
        words = [str(item).lower() if isinstance(item, bool) else item for item in items]
        texts[key] = [escape_text(str(word)) if word not in ("", []) else "(empty)" for word in words]
    column = max((len(items[0]) for items in texts.values() if len(items[0]) <= _VALUE_WIDTH), default=0)
    for key, (first, *others) in texts.items():
        head, origin = f"  {key:{width}}  ", values[key]["origin"].removesuffix(f", key {key.lower()}")
        for file in files:
            origin = origin.replace(file["path"], _shorten_path(file["path"]))
        origin = "" if origin == BUILT_IN else escape_text(origin)
        line = f"{head}{first:{column}}  {origin}".rstrip()
        fits = len(line) <= WIDTH
        yield line if fits else f"{head}{first}"
        for item in others:
            yield f"{'':{len(head)}}{item}"
        if not fits and origin:
            yield from wrap_text(f"from {origin}", " " * (len(head) + 2))


def _shorten_path(path: str) -> str:
    """Return the shortest form of a path: absolute, or relative to the working or the home directory."""
    home = os.path.expanduser("~")  # noqa: PTH111 there may be no home
    below = f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path
    return min((path, os.path.relpath(path), below), key=len)
