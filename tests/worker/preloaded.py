"""Imports torch once and forks processes from there, as the launcher fork does: `python preloaded.py SOCKET`.

Who connects sends a standard input, output and error, and a line of JSON: module or file, words, environ, cwd. It gets
two lines: the process's id, and, when that has ended, its status as Popen gives it.
"""

import os
import signal

from slurmddp.runtime.rank_process import this_process

this_process()

import contextlib  # noqa: E402 - what is imported later has its exit handlers run earlier
import importlib  # noqa: E402
import json  # noqa: E402
import runpy  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

from slurmddp.runtime.exiting.process_exit import freeze_imports  # noqa: E402
from slurmddp.runtime.launch.process import signal_at_parent_death  # noqa: E402

IMPORTED = ("torch", "torch._dynamo", "torch.distributed.fsdp", "slurmddp.runtime.health.preflight")


def main(path: str) -> None:
    """Serve until the parent ends; return in each process that is to be one of those asked for."""
    signal_at_parent_death(signal.SIGKILL)
    for module in IMPORTED:
        importlib.import_module(module)
    freeze_imports()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(64)
        os.rename(f"{path}.new", path)  # noqa: PTH104 - who finds it can connect
        connection = _accept(listener)
    request = _become(connection)
    sys.argv[1:] = request["words"]
    run = runpy.run_path if request["module"].endswith(".py") else runpy.run_module
    run(request["module"], run_name="__main__")


def _accept(listener: socket.socket) -> socket.socket:
    """Return, in a process of its own, what somebody connected."""
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal_at_parent_death(signal.SIGKILL)
            return connection
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _become(connection: socket.socket) -> dict:
    """Return the request in a child that has its streams, environment and folder; report the child's end."""
    with connection:
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        request = json.loads(connection.makefile().readline())
        pid = os.fork()
        if pid:
            connection.sendall(b"%d\n" % pid)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(b"%d\n" % status)
            os._exit(0)
    signal_at_parent_death(signal.SIGKILL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    return request


if __name__ == "__main__":
    main(sys.argv[1])
