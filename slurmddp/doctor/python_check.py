"""The job's Python: whether it starts, is new enough, and has torch and slurmddp. Starts it once; no torch import."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.file_systems import is_shared, type_of
from slurmddp.runs.findings import Finding
from slurmddp.script.render import supervisor_python
from slurmddp.version import __version__

OLDEST: Final = (3, 11)
TIMEOUT_S: Final = 20.0
"""For a Python on a slow file system to start."""
_PROBE: Final = Path(__file__).with_name("python_probe.py")

Found = dict[str, Any]


def check_python(spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with the Python of the ranks, as far as it can be known before the job runs."""
    if spec.container or spec.supervisor_python:
        yield from _check_supervisor(supervisor_python(spec), spec, environ)
    python = python_of(spec)
    if python is None:
        what = "is in its container" if spec.container else "is found by set-up lines that run on the nodes only"
        yield Finding(
            check="python",
            level="note",
            what=f"the job's Python {what}",
            advice="`slurmddp doctor --in-job` looks at it there",
        )
        return
    found = ask(python, spec, environ)
    if isinstance(found, str):
        yield _wrong(f"{python} {found}", "give the Python that has torch, by --python or --venv")
        return
    yield from of_python(python, found, spec)


def _check_supervisor(python: str, spec: JobSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with a Python that is to run the supervisor alone: it needs no torch."""
    found = ask(python, spec, environ)
    if isinstance(found, str):
        yield _wrong(f"{python}, the supervisor's, {found}", "give one that the nodes have, by --supervisor-python")
    elif tuple(found["version"]) < OLDEST or found["slurmddp"] is None:
        lacks = "slurmddp" if tuple(found["version"]) >= OLDEST else "Python 3.11 or newer"
        yield _wrong(f"{python}, the supervisor's, lacks {lacks}", "choose another by --supervisor-python")
    else:
        yield from _of_slurmddp(python, found)
        yield Finding(check="python", level="ok", what=f"the supervisor's {python} has slurmddp {found['slurmddp']}")


def python_of(spec: JobSpec) -> str | None:
    """Return the Python of the ranks; None when it is in a container, or only the job's own set-up lines find it."""
    if spec.container:
        return None
    if spec.python and "/" in spec.python:
        return spec.python
    if _is_set_up(spec):
        return None
    return f"{spec.venv.rstrip('/')}/bin/python" if spec.venv else spec.python or sys.executable


def _is_set_up(spec: JobSpec) -> bool:
    return bool(spec.conda or spec.module or spec.setup or spec.setup_file)


def ask(python: str, spec: JobSpec, environ: Mapping[str, str]) -> Found | str:
    """Return what a Python says of itself; a text that says why it does not."""
    words = [spec.command[1]] if spec.command[:1] == ("-m",) else []
    try:
        done = subprocess.run(
            [python, "-c", _PROBE.read_text(), *words],
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
        return f"ends with status {done.returncode}: {said or 'without a word'}"
    return found


def of_python(python: str, found: Found, spec: JobSpec) -> Iterator[Finding]:
    """Yield what is wrong with a Python that has `found` in it."""
    version = ".".join(map(str, found["version"]))
    if tuple(found["version"]) < OLDEST:
        yield _wrong(f"{python} is Python {version}; the ranks need 3.11 or newer", "choose another by --python")
        return
    if found["slurmddp"] is None:
        yield _wrong(f"{python} has no slurmddp, which every rank starts with", f"{python} -m pip install slurmddp")
    if found["torch"] is None:
        yield _wrong(f"{python} has no torch", f"{python} -m pip install torch")
        return
    yield from _of_command(python, found, spec)
    yield from _of_slurmddp(python, found)
    yield from _of_torch(found, spec)
    what = f"{python} is Python {version} with torch {found['torch']}"
    yield Finding(check="python", level="ok", what=what)


def _of_command(python: str, found: Found, spec: JobSpec) -> Iterator[Finding]:
    for name, there in found["modules"].items():
        what = f"COMMAND names the module {name}, which {python} does not find from here"
        if not there and _is_set_up(spec):
            yield Finding(check="python", level="note", what=what, why="the set-up lines may lead to it")
        elif not there:
            yield _wrong(what, "check its name")


def _of_slurmddp(python: str, found: Found) -> Iterator[Finding]:
    if found["slurmddp"] not in (None, __version__):
        yield Finding(
            check="python",
            level="warning",
            what=f"{python} has slurmddp {found['slurmddp']}, and this one is {__version__}",
            why="the batch script and the ranks speak of different things",
            advice=f"{python} -m pip install slurmddp=={__version__}",
        )


def _of_torch(found: Found, spec: JobSpec) -> Iterator[Finding]:
    if spec.gpus and found["torch"].endswith("+cpu"):
        yield Finding(
            check="cuda",
            level="warning",
            what=f"torch {found['torch']} is built for CPUs, and the job asks for GPUs",
            why="where there is a driver the ranks refuse to start; without one they train on the CPU",
            advice="install a torch with CUDA (https://pytorch.org/get-started/locally), or leave out --gpus-per-node",
        )
    place = Path(found["torch in"] or "/").parent
    if is_shared(place) and spec.tasks_per_node > 1 and spec.launcher != "fork":
        yield Finding(
            check="imports",
            level="note",
            what=f"torch lies on a network file system ({type_of(place)}), and {spec.world_size} ranks import it",
            why="an import of torch asks for 20,000 files; it can take minutes",
            advice="--launcher fork imports once a node",
        )


def _wrong(what: str, advice: str) -> Finding:
    return Finding(check="python", level="error", what=what, why="no rank starts", advice=advice, status=2)
