"""Where the programs are that are measured, and how they are run. Starts processes."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rows import seconds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SLURMDDP = str(Path(sys.executable).parent / "slurmddp")
PEERS = ROOT / ".venv-bench" / "bin"
"""The programs of the peers' environment; `make bench` makes it."""
PEERS_PYTHON = str(PEERS / "python")
TORCHX = str(PEERS / "torchx")
LIMIT_S = 600

ENVIRON = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | {
    "OMP_NUM_THREADS": "1"
}
"""All sides find their modules compiled, as after an installation."""


def run(command: Sequence[str], environ: Mapping[str, str] = ENVIRON, cwd: Path | None = None) -> str:
    """Return what a program prints; raise CalledProcessError with its stderr when it fails."""
    done = subprocess.run(  # noqa: PLW1510 its stderr is printed first
        command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    done.check_returncode()
    return done.stdout


def run_seconds(command: Sequence[str], environ: Mapping[str, str] = ENVIRON, cwd: Path | None = None) -> float:
    """Return how long a program takes from its start to its end."""
    return seconds(lambda: run(command, environ, cwd))
