"""The script of a job whose program is there to be run: looks at files and run, then renders. Nothing is written."""

from pathlib import Path

from slurmddp.command import is_worker, script_of
from slurmddp.errors import UsageError
from slurmddp.fields import shown
from slurmddp.render import render
from slurmddp.rundir import RunDir
from slurmddp.spec import JobSpec
from slurmddp.worker.files import check


def script(spec: JobSpec) -> bytes:
    """Return the batch script of a job whose program is there to be run.

    Raises UsageError when the script or the data are missing here.
    """
    path = script_of(spec.command)
    if path is not None and not Path(path).is_file():
        raise UsageError(f"COMMAND: there is no file {shown(path)} in {Path.cwd()}; check the path")
    if is_worker(spec.command):
        check(spec.worker)
    run = RunDir.named(spec.runs_dir, spec.job_name)
    return render(spec, reset_number=run.next_reset).encode()
