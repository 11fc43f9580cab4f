"""torchrun that passes stop signals on to its ranks; one task a node.

    python -m slurmddp.runtime.launch.torchrun [torchrun's options and program]

SIGTERM, SIGUSR1 and SIGUSR2 would end torch's agent, or make it kill the ranks after 30 s. Here they are blocked, and a
thread sends each to the ranks, as soon as there are any: Slurm sends a signal only once.
"""

import signal

STOP_SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

import contextlib  # noqa: E402 - a signal during the imports must not be lost
import logging  # noqa: E402 - the same
import os  # noqa: E402 - the same
import sys  # noqa: E402 - the same
import threading  # noqa: E402 - the same
import time  # noqa: E402 - the same
from pathlib import Path  # noqa: E402 - the same

from slurmddp import exit_codes  # noqa: E402 - the same
from slurmddp.background import wait_until  # noqa: E402 - the same
from slurmddp.errors import PeerError  # noqa: E402 - the same
from slurmddp.runtime.launch.addresses import resolve_head  # noqa: E402 - the same
from slurmddp.runtime.launch.process import signal_at_parent_death  # noqa: E402 - the same
from slurmddp.runtime.launch.rank import place_of_node  # noqa: E402 - the same
from slurmddp.watchdog.look import read_stat  # noqa: E402 - the same

RANKS_LIMIT_S = 10.0
"""For the ranks of the node to start after a signal has come; without ranks the agent ends, and so does the step.

It counts from the end of the agent's imports, which take long on a busy machine.
"""
POLL_S = 0.1
"""Between two looks for ranks; the agent starts all ranks of a node in less."""

_imported = threading.Event()


def main(words: list[str]) -> None:
    """Run torchrun with these words until its ranks have ended. It ends when its parent process ends.

    A rank that failed has written its error: torchrun's long report of it is not printed.
    """
    threading.Thread(target=_forward_signals, name="signals", daemon=True).start()
    signal_at_parent_death(signal.SIGTERM)
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415 - the thread is first
    from torch.distributed.run import main as torchrun  # noqa: PLC0415 - the same

    _imported.set()
    logging.disable(logging.ERROR)
    try:
        torchrun([_make_reachable(word) for word in words])
    except PeerError as error:
        sys.exit(f"Error: {error}")
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()  # ranks by torchrun's own numbers
        how = f"was killed by {failure.signal_name()}" if failure.exitcode < 0 else f"ended with {failure.exitcode}"
        sys.exit(f"torchrun: rank {rank} (pid {failure.pid}) {how}, the first to fail")


def _make_reachable(word: str) -> str:
    """Return the word; the host of --rdzv-endpoint becomes a name or address that resolves on this node.

    In --local-addr, by which torchrun sets MASTER_ADDR of the ranks, {host} becomes this node.
    """
    option, equals, endpoint = word.partition("=")
    if option == "--local-addr":
        return word.replace("{host}", os.environ.get("SLURMD_NODENAME", "localhost"))
    if option != "--rdzv-endpoint" or "SLURM_NODEID" not in os.environ:
        return word
    name, _, port = endpoint.rpartition(":")
    host = os.environ.get("SLURMD_NODENAME", "this node")
    return f"{option}{equals}{resolve_head(name, os.environ, node_rank=place_of_node(os.environ), host=host)}:{port}"


def _forward_signals() -> None:
    while True:
        number = signal.sigwait(STOP_SIGNALS)
        _imported.wait()
        if not wait_until(lambda: list_children(os.getpid()), RANKS_LIMIT_S, POLL_S):
            os._exit(exit_codes.RETRYABLE)
        time.sleep(POLL_S)
        for pid in list_children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def list_children(parent: int) -> list[int]:
    """Return the living child processes of a process."""
    stats = {int(path.name): read_stat(path.name) for path in Path("/proc").glob("[0-9]*")}
    return [pid for pid, (state, its_parent, *_) in stats.items() if its_parent == str(parent) and state != "Z"]


if __name__ == "__main__":
    main(sys.argv[1:])
