"""The job's Python: whether it starts, is new enough, and has torch. Does not import torch."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slurmddp.attach import OLDEST, run_words
from slurmddp.config.command import Command
from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.catalogue import finding
from slurmddp.doctor.storage import file_system
from slurmddp.runs.findings import Finding
from slurmddp.version import __version__

TIMEOUT_S: Final = 20.0
"""How long the start of a Python may take on a slow file system."""
_PROBE: Final = Path(__file__).with_name("python_probe.py")

Found = dict[str, Any]


def check_python(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about the Python of the ranks, as far as it is known before the job runs."""
    if spec.container or spec.supervisor_python:
        yield from _check_supervisor(spec.supervisor_python or sys.executable, spec, environ)
    python = find_python(spec)
    if python is None:
        yield finding("python", "in-container" if spec.container else "by-set-up")
    elif isinstance(found := probe_python(python, spec, environ), str):
        yield _error(f"{python} {found}", "choose a Python that has torch: --python or --venv")
    else:
        yield from check_packages(python, found, spec)


def _check_supervisor(python: str, spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about a Python that runs only the supervisor: it needs no torch."""
    found = probe_python(python, spec, environ)
    if isinstance(found, str):
        yield _error(f"the supervisor's Python {python} {found}", "choose one that the nodes have: --supervisor-python")
    elif tuple(found["version"]) < OLDEST or (
        found["slurmddp"] is None and run_words(python, has_slurmddp=True)[0] == "-P"
    ):
        missing = "slurmddp" if tuple(found["version"]) >= OLDEST else "version 3.9 or newer"
        yield _error(f"the supervisor's Python {python} has no {missing}", "choose another one: --supervisor-python")
    else:
        if found["slurmddp"] not in (None, __version__):
            yield finding("python", "other-version", python=python, found=found["slurmddp"], own=__version__)
        yield finding("python", "supervisor", python=python, version=found["slurmddp"] or __version__)


def find_python(spec: JobSpec) -> str | None:
    """Return the Python of the ranks; None if it is in a container, or if set-up lines of the job choose it."""
    if spec.container:
        return None
    if spec.python and "/" in spec.python:
        return spec.python
    if spec.has_setup or (spec.venv and not spec.is_venv_known):
        return None
    return f"{spec.venv.rstrip('/')}/bin/python" if spec.venv else spec.python or sys.executable


def probe_python(python: str, spec: JobSpec, environ: Mapping[str, str]) -> Found | str:
    """Return the probe's answer from a Python; a text with the reason if there is none."""
    command = spec.parsed_command
    words = [str(Path(command.script or "").parent), *list_modules(command)]
    try:
        done = subprocess.run(  # noqa: S603 - the Python that the user names
            [python, str(_PROBE), *words],
            env={**environ, **dict(text.split("=", 1) for text in spec.variables if "=" in text)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"has not started within {TIMEOUT_S:.0f} s"
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    try:
        found: Found = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        said = done.stderr.strip().rpartition("\n")[2]
        return f"ends with status {done.returncode}: {said or 'no message'}"
    return found


def list_modules(command: Command) -> list[str]:
    """Return the module that COMMAND names, or those that its script imports in any case; the script is not run."""
    if command.kind == "module":
        return [command.words[command.place]]
    with suppress(OSError, SyntaxError, ValueError):  # no script, or one for a newer Python than this one
        body = ast.parse(Path(command.script or "").read_bytes()).body
        names = [one.name for line in body if isinstance(line, ast.Import) for one in line.names]
        names += [line.module or "" for line in body if isinstance(line, ast.ImportFrom) and not line.level]
        return [*dict.fromkeys(name.partition(".")[0] for name in names if name != "slurmddp")]  # the ranks get that
    return []


def check_packages(python: str, found: Found, spec: JobSpec) -> Iterator[Finding]:
    """Yield the findings about a Python that answered the probe with `found`."""
    version = ".".join(map(str, found["version"]))
    if tuple(found["version"]) < OLDEST:
        yield _error(f"{python} is Python {version}; the ranks need 3.9 or newer", "choose another one: --python")
        return
    if not spec.command and found["msgspec"] is None:
        yield _error(f"{python} has no msgspec, which the bundled worker needs", f"{python} -m pip install msgspec")
    if found["torch"] is None:
        yield _error(f"{python} has no torch", f"{python} -m pip install torch")
        return
    for name in (name for name, there in found["modules"].items() if not there):
        note = finding("python", "module-by-set-up", module=name, python=python)
        package = f"{python} -m pip install {name}; the package may have another name, as pyyaml of yaml"
        yield note if spec.has_setup else _error(note.what, package if spec.parsed_command.script else "check its name")
    if spec.gpus and found["torch"].endswith("+cpu"):
        yield finding("cuda", "missing", torch=found["torch"])
    sharing, kind = file_system(Path(found["torch in"] or "/").parent)
    if sharing == "shared" and spec.tasks_per_node > 1 and spec.launcher != "fork":
        yield finding("imports", "slow", ranks=spec.world_size, kind=kind)
    yield finding("python", "ok", python=python, version=version, torch=found["torch"])


def _error(what: str, advice: str) -> Finding:
    return finding("python", "wrong", what=what, advice=advice)
