"""The script of a job whose program is there to be run: looks at files and run, then renders. Nothing is written."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurmddp.config.command import is_worker, script_of
from slurmddp.config.datasets import check
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script.render import render
from slurmddp.text import shown

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array
    from slurmddp.script.snapshot import Code


def script(spec: JobSpec, code: "Code | None" = None, array: "Array | None" = None) -> bytes:
    """Return the batch script of a job whose program is there to be run.

    `code` is what a job with a snapshot is to run, read here where it is not given; `array` what each task of one runs.
    Raises UsageError when the script or the data are missing here.
    """
    for program in array.programs if array else (spec,):
        check_program(program)
    if code is None and spec.snapshot:
        from slurmddp.script.snapshot import code_of  # noqa: PLC0415 most jobs have no snapshot, and every start would pay for it

        code = code_of(spec)
    run = RunDir.named(spec.runs_dir, spec.job_name)
    return render(spec, reset_number=run.next_reset, code=code, array=array).encode()


def check_program(spec: JobSpec) -> None:
    """Raise UsageError when the script or the data are missing here; what may be in a container is not looked for."""
    if is_worker(spec.command):
        if not _is_inside(spec, spec.worker.data):
            check(spec.worker)
    elif _is_inside(spec, spec.command[0]):
        return
    elif spec.no_python:
        _check_executable(spec.command[0])
    else:
        _check_script(script_of(spec.command))


def _is_inside(spec: JobSpec, path: str | None) -> bool:
    return spec.container is not None and path is not None and path.startswith("/")


def _check_script(path: str | None) -> None:
    if path is not None and not Path(path).is_file():
        raise UsageError(f"COMMAND: there is no file {shown(path)} in {Path.cwd()}; check the path")


def _check_executable(path: str) -> None:
    """Check a path; a bare name is looked up on the nodes, whose PATH may be another."""
    if "/" in path and not (Path(path).is_file() and os.access(path, os.X_OK)):
        raise UsageError(f"COMMAND: {shown(path)} is no file that can be executed; check the path, or `chmod +x` it")
