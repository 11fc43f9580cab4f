"""Imports torch once on a node and forks the node's ranks; one task a node.

    python -m slurmddp.runtime.launch.fork --nproc-per-node=N -- COMMAND...

Only imports come before the fork: no thread, no CUDA call, no group. numpy's BLAS would start its threads when it is
imported, so it gets one thread; torch's own are as many as OMP_NUM_THREADS says.
"""

import signal

BLOCKED_DURING_IMPORTS = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGCHLD}
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_DURING_IMPORTS)

from slurmddp.runtime.rank_process import this_process  # noqa: E402 - a signal during the imports must not kill the node

if __name__ == "__main__":
    this_process()

import gc  # noqa: E402 - the same
import importlib  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import runpy  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from slurmddp import exit_codes, variables  # noqa: E402
from slurmddp.errors import RankError  # noqa: E402
from slurmddp.runtime.exiting.process_exit import freeze_imports  # noqa: E402
from slurmddp.runtime.health.facts import versions  # noqa: E402
from slurmddp.runtime.launch.process import die_with_parent, print_line, redirect_output  # noqa: E402
from slurmddp.runtime.launch.rank import Rank, read_rank, step_variables  # noqa: E402

BLOCKED_DURING_FORKS = {signal.SIGTERM, signal.SIGINT}
PRELOADED = (
    "torch",
    "torch._dynamo",  # the first optimizer step imports it
    "slurmddp.runtime.exiting.flight_recorder",
    "slurmddp.runtime.health.preflight",
    "slurmddp.runtime.heartbeat",
    "slurmddp.runtime.rendezvous.process_group",
    "slurmddp.runtime.rendezvous.rendezvous",
    "slurmddp.runtime.stopping.children",
    "slurmddp.worker.entry",
)
"""What every rank imports."""
FORWARDED = (BLOCKED_DURING_FORKS | BLOCKED_DURING_IMPORTS) - {signal.SIGCHLD}
GRACE_S = 10.0
"""Between SIGTERM to the other ranks, after one has failed, and SIGKILL."""
FOREVER_S = 3600.0


def main(words: list[str]) -> int:
    """Fork this node's ranks and end with the exit status of the first that failed; a rank returns its own."""
    try:
        count, command = parse(words)
        node = _node()
        _preload()
        _check_threads()
    except RankError as error:
        print_line(f"Error: {error}", sys.stderr)
        return error.exit_status
    cpus = split_cpus(sorted(os.sched_getaffinity(0)), count)
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_DURING_FORKS)
    children: dict[int, int] = {}
    for local_rank in range(count):
        pid = os.fork()
        if pid == 0:
            _become_rank(node, local_rank, count, parent, cpus[local_rank], command)
            return exit_codes.FAILED
        children[pid] = node.node_rank * count + local_rank
    status = _supervise(children)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # to finalize torch's modules takes a second in which the job's grace time passes


def parse(words: list[str]) -> tuple[int, list[str]]:
    """Return the number of ranks on a node and COMMAND, from the words after the module's name."""
    match = re.fullmatch(r"--nproc-per-node=([1-9][0-9]{0,3})", words[0]) if words else None
    if match is None or words[1:2] != ["--"]:
        raise RankError(f"given {' '.join(words)!r}; allowed is --nproc-per-node=N -- COMMAND...")
    return int(match[1]), words[2:]


def split_cpus(cpus: list[int], count: int) -> list[list[int]]:
    """Return each rank's CPUs: equal parts of the node's, or all of them if there are fewer than ranks."""
    size = len(cpus) // count
    return [cpus[index * size : (index + 1) * size] or cpus for index in range(count)]


def _node() -> Rank:
    """Return this task of the step; its world size is the number of nodes."""
    node = read_rank({**os.environ, variables.STARTED_BY: "srun"})
    if node.local_world_size != 1:
        raise RankError(f"{node.local_world_size} tasks on {node.host}; fork needs srun --ntasks-per-node=1")
    return node


def _preload() -> None:
    """Import what every rank needs, and look up once what is the same for all of them.

    The collector finds nothing to free in what is imported, and its search takes a tenth of the time.
    """
    gc.disable()
    limited = "OPENBLAS_NUM_THREADS" not in os.environ
    if limited:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in PRELOADED:
        importlib.import_module(name)
    versions()
    freeze_imports()
    gc.enable()
    if limited:
        del os.environ["OPENBLAS_NUM_THREADS"]


def _check_threads() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise RankError(f"{threads} threads run after the imports and would not survive a fork; use --launcher srun")


def _become_rank(node: Rank, local_rank: int, count: int, parent: int, cpus: list[int], command: list[str]) -> None:
    """Turn this forked process into a rank, and run `slurmddp.worker`."""
    die_with_parent(parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGCHLD, signal.SIGCONT})
    rank = node.node_rank * count + local_rank
    names = step_variables(rank, local_rank, node.world_size * count, count)
    os.environ.update({variables.STARTED_BY: "fork", **names})
    os.sched_setaffinity(0, cpus)
    with open(os.devnull) as nothing:  # noqa: PTH123 - a number is needed, no path
        os.dup2(nothing.fileno(), 0)
    if node.run_dir:
        redirect_output(node.run_dir.rank_log(node.job, node.attempt, rank))
    importlib.import_module("numpy").random.seed()  # from the system, as in a new interpreter
    if "OMP_NUM_THREADS" not in os.environ:
        importlib.import_module("torch").set_num_threads(len(cpus))
    sys.argv[1:] = command
    runpy.run_module("slurmddp.worker", run_name="__main__")


def _supervise(children: dict[int, int]) -> int:
    """Wait for all ranks, by process id, and forward signals to them; end the others when one fails.

    Returns the status of the first that failed, 128 + n for signal n.
    """
    status: int = exit_codes.DONE
    kill_at: float | None = None
    while children:
        limit_s = max(0.0, kill_at - time.monotonic()) if kill_at else FOREVER_S
        info = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, limit_s)
        number = info.si_signo if info else 0
        if info is None and kill_at:
            number, kill_at = signal.SIGKILL, None
        elif number == signal.SIGCHLD:
            number = 0
            while children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, code = ended[0], os.waitstatus_to_exitcode(ended[1])
                rank = children.pop(pid)
                if code and not status:
                    status = 128 - code if code < 0 else code
                    print_line(f"rank {rank} (pid {pid}) ended with status {status}; stopping the others")
                    number, kill_at = signal.SIGTERM, time.monotonic() + GRACE_S
        for pid in children if number else ():
            os.kill(pid, number)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
