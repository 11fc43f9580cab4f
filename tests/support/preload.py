"""Processes that are forked where torch is loaded already: importing it takes seconds of a core."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from polling import until

FOREIGN = ("SLURM", "TORCHELASTIC", "MASTER_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI")
SERVER = Path(__file__).parent.parent / "worker" / "preloaded.py"


def clean_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "OMP_NUM_THREADS": "1"}


class Preloaded:
    """A process that was forked where torch is loaded already, with what these tests use of Popen."""

    def __init__(self, server: Path, words: Sequence, environ: dict[str, str], cwd: Path, output: IO | None):
        self.returncode: int | None = None
        self._streams = [] if output else [os.fdopen(os.memfd_create(name), "r+b") for name in ("out", "err")]
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(server))
        self._answers = self._connection.makefile("r")
        module, *arguments = map(os.fsdecode, words)
        request = {"module": module, "words": arguments, "environ": environ, "cwd": str(cwd)}
        with Path(os.devnull).open() as nothing:
            streams = [stream.fileno() for stream in (nothing, *(self._streams or [output, output]))]
            socket.send_fds(self._connection, [b"x"], streams)
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> list[str]:
        self.wait(timeout)
        outputs = []
        for stream in self._streams:
            with stream:
                stream.seek(0)
                outputs.append(stream.read().decode())
        return outputs or ["", ""]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextmanager
def server(folder: Path) -> Iterator[Path]:
    """Return the socket at which processes are forked that have torch loaded."""
    path = folder / "socket"
    program = [sys.executable, "-P", "-u", str(SERVER), str(path)]
    with subprocess.Popen(program, env=clean_environment()) as process:
        try:
            until(lambda: path.exists() or process.poll() is not None, 600)
            assert process.poll() is None
            yield path
        finally:
            process.kill()
