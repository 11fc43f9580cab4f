"""Processes that are forked where torch is loaded already: importing it takes seconds of a core."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
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

    def __init__(self, server: "Server", words: Sequence, environ: dict[str, str], cwd: Path, output: IO | None):
        self.returncode: int | None = None
        self._streams = [] if output else [os.fdopen(os.memfd_create(name), "r+b") for name in ("out", "err")]
        self._connection = server.connect()
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


class Server:
    """Forks processes that have torch loaded; where something has killed it, another is started, with a warning."""

    def __init__(self, folder: Path):
        self._path = folder / "socket"
        self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def connect(self) -> socket.socket:
        if self.process.poll() is not None:
            warnings.warn(f"the server at {self._path} ended with status {self.process.returncode}", stacklevel=2)
            self._path.unlink()
            self._start()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._path))
        return connection

    def _start(self) -> None:
        program = [sys.executable, "-P", "-u", str(SERVER), str(self._path)]
        self.process = subprocess.Popen(program, env=clean_environment())
        until(lambda: self._path.exists() or self.process.poll() is not None, 600)
        assert self.process.poll() is None
