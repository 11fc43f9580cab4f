"""torchrun, but that it leaves a notice to its ranks: one task a node.

    python -m slurmddp.runtime.launch.torchrun [torchrun's options and program]

TERM, USR1 and USR2 would end torch's agent, or make it kill the ranks after 30 s of saving. Here they wait, blocked,
for a thread that sends each on to the ranks; as soon as there are any, since Slurm sends a notice once.
"""

import signal

NOTICES = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTICES)

import contextlib  # noqa: E402 - a notice during the imports must not be lost
import logging  # noqa: E402 - the same
import os  # noqa: E402 - the same
import sys  # noqa: E402 - the same
import threading  # noqa: E402 - the same
import time  # noqa: E402 - the same
from pathlib import Path  # noqa: E402 - the same
from typing import Any  # noqa: E402 - the same

from slurmddp import exit_codes  # noqa: E402 - the same
from slurmddp.errors import PeerError  # noqa: E402 - the same
from slurmddp.runtime.launch.addresses import address_of_head  # noqa: E402 - the same
from slurmddp.runtime.launch.parent_death import signal_at_end_of_parent  # noqa: E402 - the same

RANKS_LIMIT_S = 10.0
"""For a node's ranks to be there when a notice has come; an agent without any ends, and with it the job's step."""
LOOK_S = 0.1
"""Between two looks for ranks; the agent starts all of a node in less."""


def main(words: list[str]) -> None:
    """Run torchrun with these words until its ranks have ended; with whatever starts it, it ends too.

    A rank that failed has written down why: torchrun's page about it is left out.
    """
    threading.Thread(target=_pass_on, name="notices", daemon=True).start()
    signal_at_end_of_parent(signal.SIGTERM)
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415 - the thread is first
    from torch.distributed.run import main as torchrun  # noqa: PLC0415 - the same

    logging.disable(logging.ERROR)
    try:
        torchrun([_reachable(word) for word in words])
    except PeerError as error:
        sys.exit(f"Error: {error}")
    except ChildFailedError as error:
        sys.exit(_first(error))


def _reachable(word: str) -> str:
    """Return the agents' meeting point by a name or address that resolves on this node."""
    option, equals, endpoint = word.partition("=")
    node = os.environ.get("SLURM_NODEID", "")
    if option != "--rdzv-endpoint" or not node.isdecimal():
        return word
    name, _, port = endpoint.rpartition(":")
    host = os.environ.get("SLURMD_NODENAME", "this node")
    return f"{option}{equals}{address_of_head(name, os.environ, node_rank=int(node), host=host)}:{port}"


def _first(error: Any) -> str:
    """Return which rank failed first, and how, in torchrun's own count."""
    rank, failure = error.get_first_failure()
    how = f"was killed by {failure.signal_name()}" if failure.exitcode < 0 else f"ended with {failure.exitcode}"
    return f"torchrun: rank {rank} (pid {failure.pid}) {how}, the first to fail"


def _pass_on() -> None:
    while True:
        number = signal.sigwait(NOTICES)
        deadline = time.monotonic() + RANKS_LIMIT_S
        while not children(os.getpid()):
            if time.monotonic() > deadline:
                os._exit(exit_codes.RETRYABLE)
            time.sleep(LOOK_S)
        time.sleep(LOOK_S)
        for pid in children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def children(parent: int) -> list[int]:
    """Return the processes that a process has started and that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, its_parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(its_parent) == parent and state != "Z":
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
