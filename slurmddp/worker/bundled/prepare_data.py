"""Checks or fetches a task's data on the machine where the job is submitted.

    python -m slurmddp.worker.bundled.prepare_data OPTIONS...

Standard output has only the error message; the task's own output goes to standard error.
"""

import os
import sys

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import parse
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks import task_class


def main(words: list[str]) -> int:
    """Return 0 when the task and its data exist; else print what is missing and return UsageError's status."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        options = parse(words)
        find_data(options)
        task_class(options.task).prepare(options)
    except UsageError as error:
        os.write(answer, str(error).encode("utf-8", "surrogateescape"))
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
