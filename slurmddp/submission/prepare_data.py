"""Checks or fetches the data of a task before the job is submitted, in the job's own Python. Starts one process."""

import importlib.util
import subprocess
import sys

from slurmddp.attach import run_option
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.worker_options import BUNDLED, arguments
from slurmddp.errors import UsageError


def prepare(spec: JobSpec) -> None:
    """Check that the worker's packages are installed, and call `prepare` of a task that only the job's Python can load.

    A job with its own environment (modules, conda, container) is not checked here. Raises UsageError with what is
    missing.
    """
    if spec.command or spec.has_setup or spec.venv or spec.container:
        return
    if spec.worker.tensorboard and spec.python is None and not importlib.util.find_spec("tensorboard"):
        raise UsageError(
            "--tensorboard needs the package tensorboard, which is not installed; pip install 'slurmddp[tensorboard]'"
        )
    if spec.worker.task in BUNDLED:
        return
    python, module = spec.python or sys.executable, "slurmddp.worker.bundled.prepare_data"
    command = [python, "-P", run_option(python), module, *arguments(spec.worker)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)  # noqa: S603 - the Python that the user names
    except OSError as error:
        raise UsageError(f"--python {command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        told = done.stdout.decode("utf-8", "replace").strip()
        how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else "failed; see above"
        raise UsageError(" ".join(told.split()) or f"--task {spec.worker.task}: looking for it and its data {how}")
