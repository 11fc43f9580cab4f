"""Puts a copy of the ranks' environment on the disk of each node of the job, for `--stage-env`.

    python -m slurmddp.batch.stage ARCHIVE FOLDER

Prints the folder of the copy. If one node cannot have it, says why in one line on stderr, and ends with status 1: the
batch script goes on with the shared environment.
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slurmddp.batch import unpack
from slurmddp.batch.unpack import MISSING, READY
from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands
from slurmddp.slurm.environment import user

_LIMIT_S: Final = 900.0
"""For each step; a file system that is slower than this is no help."""
_MOST_WORD: Final = 100_000
"""Linux allows 128 KiB for a word of a command line."""


def main(words: list[str]) -> int:
    """Stage the archive, and print the folder of the environment."""
    archive, folder = map(Path, words)
    begin = time.monotonic()
    try:
        was_there = stage(archive, folder, os.environ)
    except (OSError, ValueError, ClusterError) as error:
        _say(f"--stage-env: {error}; the ranks use the shared environment")
        return 1
    how = "was there" if was_there else f"unpacked in {time.monotonic() - begin:.1f} s"
    _say(f"environment {archive.stem} on the disk of each node: {how}")
    sys.stdout.write(f"{folder / archive.stem / 'env'}\n")
    return 0


def stage(archive: Path, folder: Path, environ: Mapping[str, str]) -> bool:
    """Let each node have its copy; return whether all had it before.

    Raises OSError or ValueError with the reason of the first node that cannot have it, ClusterError if srun fails.
    """
    try:
        listed = client.query(commands.list_queue("--array", f"--user={user()}", columns="%A"), environ)
        queued = ",".join(listed.split())
    except ClusterError:
        queued = unpack.UNKNOWN
    words = [str(folder), str(archive), archive.with_suffix(".crc32").read_text().strip()]
    words.append(queued if len(queued) < _MOST_WORD else unpack.UNKNOWN)  # the copies of these jobs stay
    if MISSING not in _on_nodes("check", words, (READY, MISSING), environ):
        return True
    if int(environ["SLURM_NNODES"]) > 1:
        _broadcast(archive, unpack.broadcast_path(folder, environ["SLURM_JOB_ID"]), environ)
    _on_nodes("unpack", words, (READY,), environ)
    return False


def _on_nodes(step: str, words: list[str], expected: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """Run a step of `slurmddp.batch.unpack` once on each node; return the answers, which must be among these."""
    nodes = int(environ["SLURM_NNODES"])
    command = commands.run_on_each_node(nodes, sys.executable, "-P", "-m", "slurmddp.batch.unpack", step, *words)
    own = {name: value for name, value in environ.items() if name != "SLURM_CPUS_PER_TASK"}
    done = client.run_step(command, own, timeout_s=_LIMIT_S)
    sys.stderr.write(done.stderr)
    answers = done.stdout.splitlines()
    if wrong := [answer for answer in answers if answer not in expected]:
        raise ValueError(wrong[0])
    if len(answers) != nodes:
        raise ValueError(f"{len(answers)} of {nodes} nodes answered; srun ended with status {done.status}")
    return answers


def _broadcast(archive: Path, target: Path, environ: Mapping[str, str]) -> None:
    """Let Slurm copy the archive to the nodes; where it cannot, each node reads the shared file."""
    try:
        done = client.run_step(commands.broadcast(archive, target), environ, timeout_s=_LIMIT_S)
        said = done.reason if done.status else ""
    except ClusterError as error:
        said = str(error)
    if said:
        _say(f"--stage-env: each node reads the archive itself: {said}")


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%FT%T%z')} slurmddp: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
