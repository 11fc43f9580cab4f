"""The process of one rank as one object: its stop signals, its exit and its stop policy.

Code that has the object hands it on. `this_process` is for what the user's program calls without it: `slurmddp.init`,
`Checkpointer`, the callback of Lightning, and the modules that the worker runs as COMMAND.
"""

import functools
import time
from typing import TYPE_CHECKING

from slurmddp.runtime.exiting.process_exit import ProcessExit
from slurmddp.runtime.stopping.signals import StopSignals

if TYPE_CHECKING:
    from slurmddp.runtime.launch.rank import Rank
    from slurmddp.runtime.stopping.stopping import Stopping


class RankProcess:
    """What exists once in the process of a rank."""

    stopping: "Stopping"
    """The answer to stop requests; set by `begin`."""

    def __init__(self) -> None:
        self.began_at = time.monotonic()
        """When this process began, on the monotonic clock; with `fork` the parent of the node's ranks."""
        self.exit = ProcessExit()
        self.signals = StopSignals()

    @property
    def has_begun(self) -> bool:
        """Whether `begin` was called."""
        return hasattr(self, "stopping")

    def listen(self) -> None:
        """Listen to stop signals from now on, and keep them from the processes that this one starts."""
        if self.signals.listen():
            # imported here: the exit handler of multiprocessing must be registered after ours, to run before it
            from slurmddp.runtime.stopping.children import protect_children  # noqa: PLC0415

            protect_children()

    def begin(self, rank: "Rank") -> "Stopping":
        """Answer stop requests as this rank from now on."""
        from slurmddp.runtime.stopping.stopping import Stopping  # noqa: PLC0415 - the signals are taken over before

        self.listen()
        if rank.stop_at:
            self.signals.stop_at(rank.stop_at)
        self.stopping = Stopping(rank, self.signals, self.exit)
        from slurmddp.runtime.heartbeat import start_heartbeat  # noqa: PLC0415 - the same

        start_heartbeat(rank)
        return self.stopping


@functools.cache
def this_process() -> RankProcess:
    """Return the object of this process; the first call makes it."""
    return RankProcess()
