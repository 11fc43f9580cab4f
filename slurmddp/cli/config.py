"""`slurmddp config`: every value of a job, and where it came from."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from slurmddp import text
from slurmddp.cli.job_options import SYNOPSIS, JobCommand, configuration, job_options, resolve
from slurmddp.cluster.request import Request, fitted
from slurmddp.config import job_files
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.resolve import BUILT_IN, Resolved, unknown_variables
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.text import WIDTH, printable, wrapped

_VALUE: Final = 24
_RECORDED: Final = "the job file repeats a run, and has every value"

Entry = dict[str, Any]
"""A value as it may be shown, and its origin."""


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def config(job_file: Path | None, words: tuple[str, ...], *, as_json: bool, **parameters: Any) -> None:
    """Print every value of a job, and where it came from; nothing is written or submitted.

    The words are those of `submit`. What looks like a secret by its name is shown without its value.
    """
    found = configuration()
    request = fitted(resolve(job_file, words, parameters, found.files), os.environ)
    report = _report(request, found)
    click.echo(json.dumps(report) if as_json else "\n".join(_lines(report)))


def _report(request: Request, found: job_files.Configuration) -> dict[str, Any]:
    resolved, cluster = request.resolved, request.cluster
    unused = [file for file in found.files if file not in resolved.files]
    ignored = [*((str(file.path), _RECORDED) for file in unused), *((str(path), why) for path, why in found.ignored)]
    ignored += list(unknown_variables(os.environ))
    spec, origins = resolved.spec, resolved.origins
    values = {key: _entry(_shown(getattr(spec, field.name)), origins[key]) for key, field in JOB_FIELDS.items()}
    return {
        "files": [{"kind": file.kind, "path": str(file.path)} for file in resolved.files],
        "ignored": [{"name": name, "why": why} for name, why in ignored],
        "cluster": cluster.name if cluster else None,
        "silence": request.silence or None,
        "values": _with_effective(resolved, values),
        "computed": list(request.computed),
        **_program(resolved),
    }


def _program(resolved: Resolved) -> dict[str, Any]:
    spec, origins = resolved.spec, resolved.program_origins
    if spec.command:
        return {"command": _entry(list(text.masked(spec.command)), origins["command"])}
    values = {key: _shown(getattr(spec.worker, field.name)) for key, field in WORKER_FIELDS.items()}
    values["data"] = _shown(spec.worker.source)
    return {"worker": {key: _entry(value, origins[key]) for key, value in values.items()}}


def _entry(value: Any, origin: str) -> Entry:
    return {"value": value, "origin": origin}


def _shown(value: Any) -> Any:
    shown = text.masked(value)
    return list(shown) if isinstance(shown, tuple) else shown


def _with_effective(resolved: Resolved, values: dict[str, Entry]) -> dict[str, Entry]:
    """Put in what a value that nobody gave comes to."""
    spec = resolved.spec
    comes_to = {"ntasks-per-node": spec.tasks_per_node, "signal-lead": spec.lead_s}
    computed = {
        key: _entry(value, values[key]["origin"]) for key, value in comes_to.items() if values[key]["value"] is None
    }
    return values | computed


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    shorter = {file["path"]: _short(file["path"]) for file in report["files"]}
    yield from _files(report)
    values = report["values"] | ({"COMMAND": report["command"]} if "command" in report else {})
    yield from _sections("", values, report["computed"], shorter)
    yield from _sections("[worker] ", report.get("worker", {}), (), shorter)


def _files(report: Mapping[str, Any]) -> Iterator[str]:
    for file in report["files"]:
        yield f"read     {file['kind']} {printable(_short(file['path']))}"
    for file in report["ignored"]:
        yield from wrapped(f"{_short(file['name'])}: {file['why']}", "ignored  ")
    if report["silence"]:
        yield from wrapped(f"cluster: {report['silence']}", "no       ")
    own = job_files.user_file()
    if not own.exists():
        yield f"no       user file {printable(_short(str(own)))}"


def _sections(
    title: str, values: Mapping[str, Entry], computed: Collection[str], shorter: Mapping[str, str]
) -> Iterator[str]:
    """Yield what was given, what the cluster has decided, what is built in, and the names of what is not set."""
    absent = [key for key, entry in values.items() if entry["origin"] == BUILT_IN and entry["value"] in (None, [])]
    parts: dict[str, list[str]] = {"given": [], "from the cluster": [], "built-in": []}
    for key, entry in values.items():
        if key not in absent:
            built_in = entry["origin"] == BUILT_IN
            parts["from the cluster" if key in computed else "built-in" if built_in else "given"].append(key)
    width = max(map(len, values), default=0)
    for part, keys in parts.items():
        yield from ("", f"{title}{part}") if keys else ()
        yield from _rows({key: values[key] for key in keys}, width, shorter)
    if absent:
        yield ""
        yield from wrapped(", ".join(absent), f"{title}not set: ")


def _rows(values: Mapping[str, Entry], width: int, shorter: Mapping[str, str]) -> Iterator[str]:
    """Yield the values, an item a line, with their origins behind them or, where there is no room, below."""
    texts = {key: _texts(entry["value"]) for key, entry in values.items()}
    column = max((len(items[0]) for items in texts.values() if len(items[0]) <= _VALUE), default=0)
    for key, (first, *others) in texts.items():
        head, origin = f"  {key:{width}}  ", _origin(key.lower(), values[key]["origin"], shorter)
        line = f"{head}{first:{column}}  {origin}".rstrip()
        fits = len(line) <= WIDTH
        yield line if fits else f"{head}{first}"
        for item in others:
            yield f"{'':{len(head)}}{item}"
        if not fits and origin:
            yield from wrapped(f"from {origin}", " " * (len(head) + 2))


def _texts(value: Any) -> list[str]:
    return [_text(item) for item in value] if isinstance(value, list) and value else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value)) if value not in ("", []) else "(empty)"


def _origin(key: str, origin: str, shorter: Mapping[str, str]) -> str:
    """Return an origin in few words: short paths, and no key that its line begins with anyway."""
    for path, short in shorter.items():
        origin = origin.replace(path, short)
    return "" if origin == BUILT_IN else printable(origin.removesuffix(f", key {key}"))


def _short(path: str) -> str:
    """Return the shortest of a path's names: in full, from here, or from home."""
    home = os.path.expanduser("~")  # noqa: PTH111 there may be no home
    below = f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path
    return min((path, os.path.relpath(path), below), key=len)
