"""What commands share that take many settings of one job."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from slurmddp.errors import UsageError

if TYPE_CHECKING:
    from slurmddp.cluster.request import Request


def set_options(function: Any) -> Any:
    """Add what a sweep is over."""
    function = click.option(
        "--max-parallel", type=click.IntRange(min=1), metavar="N", help="Let at most N settings run at once."
    )(function)
    function = click.option("--zip", "side_by_side", is_flag=True, help="Not all combinations: first with first, ...")(
        function
    )
    return click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE,...",
        help="Values of {KEY} in COMMAND, or of that option of the bundled worker; 1..5 counts. Repeatable.",
    )(function)


def swept(request: "Request", sets: Sequence[str], side_by_side: bool, max_parallel: int | None) -> "Request":  # noqa: FBT001 as click has it
    """Return the request with the array that the options ask for; as it is when nothing is set.

    Raises UsageError for what cannot be swept over.
    """
    if not sets:
        if side_by_side or max_parallel:
            raise UsageError("--zip and --max-parallel are of a sweep; give --set KEY=VALUE,... too")
        return request
    job = request.resolved.spec
    if job.launcher == "manual":
        raise UsageError("--launcher manual is typed by hand, one setting at a time; give another --launcher")
    if job.reset:
        raise UsageError("--reset is not for a sweep, each run of which has its own past; choose another --name")
    from slurmddp.config.job_array import Array
    from slurmddp.submission import sweep_grid

    wanted = sweep_grid.settings(sweep_grid.parse(sets), side_by_side=side_by_side)
    return msgspec.structs.replace(request, array=Array(sweep_grid.tasks(job, wanted), max_parallel))
