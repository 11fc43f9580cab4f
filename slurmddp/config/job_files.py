"""Reads the files with values of a job: the job file, which the user names, and the configuration files.

Writes nothing. Which configuration files there are and count, `configuration_files.py` finds out.
"""

import shlex
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurmddp.config.batch_script import BatchScript, check_batch_script, is_batch_script
from slurmddp.config.configuration_files import Ignored, find_files, read_regular
from slurmddp.config.toml import JOB_FILE_KEYS, Source, build_source, describe_place, parse_toml
from slurmddp.errors import UsageError
from slurmddp.text import quote_value, suggest

OTHER_FORMATS: Final = (".tml", ".yaml", ".yml", ".json")
"""Endings of files that may be meant as a job file, and are none."""


class Configuration(NamedTuple):
    """The files with values for every job of a project, or of a user."""

    files: tuple[Source, ...] = ()
    """The files that count; the first beats the second."""
    ignored: tuple[Ignored, ...] = ()


def read_job_file(path: Path) -> Source:
    """Read a job file. Raises UsageError with the line of a syntax error, and for unknown keys."""
    try:
        raw = read_named(path, "job file")
    except UsageError as error:
        raise UsageError(str(error).replace("check the path", _explain_missing(path))) from error
    return build_source("job file", path, parse_toml(raw, describe_place("job file", path)), keys=JOB_FILE_KEYS)


def _explain_missing(path: Path) -> str:
    if path.name == "spec.toml" and path.with_name("submissions.jsonl").exists():
        run = path.absolute().parent.name
        return f"the record of run {quote_value(run)} is missing; submit its script or job file again with --name {run}"
    return f"`slurmddp init {shlex.quote(str(path))}` writes one"


def read_batch_script(path: str) -> BatchScript | None:
    """Return the batch script at a path; None for another kind of file, or none. Raises UsageError for a wrong one."""
    try:
        raw, why, _ = read_regular(path)
    except (OSError, ValueError):  # a NUL in the path
        return None
    return check_batch_script(path, raw) if not why and is_batch_script(path, raw) else None


def read_named(path: str | Path, what: str) -> bytes:
    """Return the content of a file that the user named as `what`.

    Raises UsageError unless it is a regular file of at most LARGEST_MB.
    """
    try:
        raw, why, _ = read_regular(path)
    except OSError as error:
        raise UsageError(f"{what} {explain_unreadable(path, error)}") from error
    if why:
        raise UsageError(f"{what} {quote_value(str(path))} {why}; give a text file")
    return raw


def read_named_text(path: str, option: str) -> str:
    """Return the text of a file that the user named by an option. Raises UsageError as `read_named` does."""
    try:
        text = read_named(path, f"{option}:").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{option}: {quote_value(path)} is not UTF-8 text; give a text file") from error
    if "\0" in text:
        raise UsageError(f"{option}: {quote_value(path)} has a NUL character; give a text file")
    return text


def explain_unreadable(path: str | Path, error: OSError) -> str:
    """Return why a file that the user named cannot be read, and what may have been meant."""
    said = f"{quote_value(str(path))} cannot be read: {error.strerror}"
    return f"{said}; {suggest_file(path)}" if isinstance(error, FileNotFoundError) else said


def suggest_file(path: str | Path) -> str:
    """Return advice for a path that does not exist: the files beside it that are spelled like it."""
    missing = Path(path)
    files = (file.name for file in missing.parent.glob("*"))
    return suggest(
        missing.name, files, "check the path", cutoff=0.75, show=lambda name: quote_value(str(missing.with_name(name)))
    )


def find_configuration(folder: Path) -> Configuration:
    """Read the configuration files that count. Raises UsageError for an error in one."""
    return Configuration(*find_files(folder, _read_found))


def _read_found(kind: str, path: Path, root: str, raw: bytes) -> Source | None:
    """Return a configuration file; None for a pyproject.toml without our table."""
    table: Any = parse_toml(raw, describe_place(kind, path))
    if root:
        tools = table.get("tool")
        table = tools.get("slurmddp") if isinstance(tools, dict) else None
    return None if table is None else build_source(kind, path, table, root=root)
