"""Runs `slurmddp` as a user does."""

import contextlib
import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from unittest import mock

from slurmddp.cli import run_command_line

SLURMDDP = Path(sys.executable).parent / "slurmddp"


def job_output(folder: Path) -> str:
    """Return the ends of what the jobs wrote, for the message of a test that fails."""
    files = sorted(folder.glob("jobs/*/logs/**/*.out")) + sorted(folder.glob("slurm-*.out"))
    return "".join(f"\n== {file.relative_to(folder)}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def slurmddp(*command: str, cwd: Path, environ: dict[str, str], status: int = 0) -> str:
    done = subprocess.run(
        [SLURMDDP, *command],
        cwd=cwd,
        env={**environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def typed(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in this process: without a cluster, and in an almost empty environment."""
    out, said = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, {"PATH": "/nowhere", "HOME": str(cwd), **environ}, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(said),
    ):
        status = run_command_line(list(words))
    printed, errors = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, said))
    return subprocess.CompletedProcess(words, status, printed, errors)


def on_a_terminal(*command: str, cwd: Path, answer: bytes = b"", **environ: str) -> tuple[int, bytes]:
    """Run a command on a terminal where the answer is typed; return its exit status and its output."""
    here, there = pty.openpty()
    os.write(here, answer)
    with subprocess.Popen(
        command, cwd=cwd, stdin=there, stdout=there, stderr=there, env={**os.environ, "TERM": "xterm", **environ}
    ) as process:
        os.close(there)
        seen = b""
        try:
            while block := os.read(here, 65536):
                seen += block
        except OSError:  # how a terminal says that nobody is left who writes
            pass
    os.close(here)
    return process.returncode, seen
