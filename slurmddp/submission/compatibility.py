"""Whether a run goes on with the program it was made with. Reads the run's spec.toml, no more."""

from pathlib import Path
from typing import Any

from slurmddp.config import resolve
from slurmddp.config.command import script_of
from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.text import shown
from slurmddp.version import __version__


def check_same(run: RunDir, resolved: Resolved, *, instead: str = "--continue to mean it") -> None:
    """Refuse to mix two programs in one run; raises UsageError with what differs, and what to do `instead`."""
    if not run.spec.exists():
        return
    before = _program(resolve.read_job_file(run.spec))
    now = _program(resolve.recorded(resolved, directory=str(Path.cwd()), version=__version__))
    for key in ("command", "worker"):
        if before.get(key) != now.get(key):
            raise UsageError(
                f"run {run.path.name} was made with another {key}: {difference(before.get(key), now.get(key))}; "
                f"choose another --name, or {instead}"
            )


def difference(before: Any, now: Any) -> str:
    """Return how a recorded command, or the worker's table, has changed; what looks like a secret is masked."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} {shown(before.get(key))} became {shown(now.get(key))}" for key in keys)
    return f"{_shown_command(before)} became {_shown_command(now)}"


def _shown_command(words: Any) -> str:
    return shown(list(map(str, words)) if words else words)


def _program(table: dict[str, Any]) -> dict[str, Any]:
    """Return what a run's program is, its script by its full path: where it was typed does not matter."""
    words = table.get("command", [])
    script_path = script_of(tuple(words[:1])) if words else None
    return table | {"command": [str(Path.cwd() / script_path), *words[1:]]} if script_path else table
