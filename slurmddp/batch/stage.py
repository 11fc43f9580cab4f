"""Puts a copy of the ranks' environment on the disk of each node of the job, for `--stage-env`.

    python -m slurmddp.batch.stage ARCHIVE FOLDER

Prints the folder of the copy. If one node cannot have it, says why in one line on stderr, and ends with status 1: the
batch script goes on with the shared environment. It starts a task on each node, which does one step there:

    python -m slurmddp.batch.stage check|unpack FOLDER ARCHIVE JOBS

This prints one line: `ready`, `missing`, or why there can be no copy. JOBS are the user's jobs in the queue; empty when
they are not known. Copies change only under the lock of FOLDER. A copy is unpacked under another name, so one with its
own name is whole.
"""

import fcntl
import gzip
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.attach import run_words
from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands
from slurmddp.slurm.environment import user
from slurmddp.trust import explain_distrust, explain_foreign, explain_owner

PREFIX: Final = "slurmddp.prefix"
"""The header of an archive that names the folder of the environment from which it was made."""
READY: Final = "ready"
MISSING: Final = "missing"
KEPT: Final = 1
"""Copies that no job uses and that stay, beside the one that is asked for."""
_PART: Final = ".part-"
_USERS: Final = ".jobs"
"""The folder of a copy with an empty file for each job that has used it."""
_LIMIT_S: Final = 900.0
"""For each step; a file system that is slower than this is no help."""
_MOST_WORD: Final = 100_000
"""Linux allows 128 KiB for a word of a command line."""


class Node(NamedTuple):
    """The folder of the copies on this node, the archive, and the job that asks for its copy."""

    folder: Path
    archive: Path
    job: str
    queued: "frozenset[str]"
    """The user's jobs in the queue; empty if they are not known."""

    @property
    def copy(self) -> Path:
        """The unpacked environment."""
        return self.folder / self.archive.stem


def broadcast_path(folder: Path, job: str) -> Path:
    """Return where sbcast puts the archive for a job."""
    return folder / f".{job}.tar"


def main(words: list[str]) -> int:
    """Stage the archive, and print the folder of the environment; with the words of a step, perform it on this node."""
    if len(words) > 2:  # noqa: PLR2004 as above
        sys.stdout.write(f"{perform_step(*words)}\n")
        return 0
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
    if why := explain_foreign(archive.parent):
        raise PermissionError(f"the archive is not yours alone: {why}")
    try:
        listed = client.query(commands.list_queue("--array", f"--user={user()}", columns="%A"), environ)
        queued = ",".join(listed.split())
    except ClusterError:
        queued = ""
    words = [str(folder), str(archive), queued if len(queued) < _MOST_WORD else ""]  # the copies of these jobs stay
    if MISSING not in _on_nodes("check", words, (READY, MISSING), environ):
        return True
    if int(environ["SLURM_NNODES"]) > 1:
        target = broadcast_path(folder, environ["SLURM_JOB_ID"])
        try:  # where Slurm cannot copy the archive to the nodes, each node reads the shared file
            done = client.run_step(commands.broadcast(archive, target), environ, timeout_s=_LIMIT_S)
            said = done.reason if done.status else ""
        except ClusterError as error:
            said = str(error)
        if said:
            _say(f"--stage-env: each node reads the archive itself: {said}")
    _on_nodes("unpack", words, (READY,), environ)
    return False


def _on_nodes(step: str, words: list[str], expected: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """Perform a step once on each node; return the answers, which must be among these."""
    nodes = int(environ["SLURM_NNODES"])
    command = commands.run_on_each_node(
        nodes, sys.executable, *run_words(sys.executable), "slurmddp.batch.stage", step, *words
    )
    own = {name: value for name, value in environ.items() if name != "SLURM_CPUS_PER_TASK"}
    done = client.run_step(command, own, timeout_s=_LIMIT_S)
    sys.stderr.write(done.stderr)
    answers = done.stdout.splitlines()
    if wrong := [answer for answer in answers if answer not in expected]:
        raise ValueError(wrong[0])
    if len(answers) != nodes:
        raise ValueError(f"{len(answers)} of {nodes} nodes answered; srun ended with status {done.status}")
    return answers


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%FT%T%z')} slurmddp: {text}\n")
    sys.stderr.flush()


def perform_step(step: str, folder: str, archive: str, queued: str) -> str:
    """Perform a step on this node; return its answer."""
    jobs = frozenset(filter(None, queued.split(",")))
    node = Node(Path(folder), Path(archive), os.environ["SLURM_JOB_ID"], jobs)
    try:
        return {"check": check, "unpack": unpack}[step](node)
    except (OSError, ValueError) as error:
        return f"{os.uname().nodename}: {error}"


def check(node: Node) -> str:
    """Make the folder, remove copies that no job uses, and say whether this copy is there. Raises OSError."""
    node.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if why := explain_distrust(node.folder) or explain_foreign(node.folder):
        raise PermissionError(why)
    with _locked(node.folder):
        _remove_unused(node)
        if _is_used_now(node):
            return READY
    free, size = shutil.disk_usage(node.folder).free, node.archive.stat().st_size
    if free < 2 * size:
        raise OSError(f"{node.folder} has {free >> 20} MB free, and {2 * size >> 20} MB are needed")
    return MISSING


def unpack(node: Node) -> str:
    """Unpack the archive unless its copy is there. Raises OSError or ValueError, and then leaves nothing."""
    broadcast = broadcast_path(node.folder, node.job)
    with _locked(node.folder):
        try:
            if not _is_used_now(node):
                _unpack(broadcast if broadcast.exists() else node.archive, node)
                _is_used_now(node)
        finally:
            broadcast.unlink(missing_ok=True)
    return READY


def _is_used_now(node: Node) -> bool:
    """Note the job as a user of the copy; return whether there is one."""
    if node.copy.is_dir():
        (node.copy / _USERS / node.job).touch()
        os.utime(node.copy / _USERS)
        return True
    return False


def _unpack(archive: Path, node: Node) -> None:
    part = Path(tempfile.mkdtemp(dir=node.folder, prefix=_PART))
    try:
        with archive.open("rb") as file:
            if why := explain_owner(os.fstat(file.fileno())):
                raise PermissionError(f"{archive} is not used: {why}")
            with gzip.open(file) as whole, tarfile.open(fileobj=whole, mode="r:") as tar:
                tar.extraction_filter = lambda member, _: member  # links may point to the outside, as in the original
                tar.extractall(part)  # noqa: S202 the archive is the user's own
                while whole.read(2**20):  # the checksum comes last
                    pass
        _move(part / "env", tar.pax_headers[PREFIX], node.copy)
        (part / _USERS).mkdir()
        part.rename(node.copy)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{archive} is damaged: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _move(environment: Path, prefix: str, copy: Path) -> None:
    """Let the environment, which had this prefix, find its interpreter at its new place, and its scripts, too."""
    settings = environment / "pyvenv.cfg"
    if settings.is_file() and (environment.parent / "base").is_dir():
        lines = settings.read_text().splitlines()
        home = f"home = {copy}/base/bin"
        settings.write_text("\n".join(home if line.startswith("home") else line for line in lines) + "\n")
    before, after = os.fsencode(f"{prefix}/bin/"), os.fsencode(f"{copy}/env/bin/")
    for script in (environment / "bin").iterdir():
        if not script.is_file() or script.is_symlink():
            continue
        with script.open("rb") as file:
            if file.read(2) != b"#!":
                continue
        words = script.read_bytes().split(b"\n", 2)  # the first two lines: pip's has two for a long path
        script.write_bytes(b"\n".join([*(line.replace(before, after) for line in words[:2]), *words[2:]]))


def _remove_unused(node: Node) -> None:
    """Remove what killed jobs have left, and copies without a job in the queue, all but the last used."""
    for part in node.folder.glob(f"{_PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    if not node.queued:
        return
    for archive in node.folder.glob(".*.tar"):
        if archive.stem.removeprefix(".") not in node.queued:
            archive.unlink(missing_ok=True)
    copies = [users.parent for users in node.folder.glob(f"*/{_USERS}") if users.parent != node.copy]
    unused = [copy for copy in copies if node.queued.isdisjoint(job.name for job in (copy / _USERS).iterdir())]
    for copy in sorted(unused, key=lambda copy: (copy / _USERS).stat().st_mtime, reverse=True)[KEPT:]:
        dying = node.folder / f"{_PART}{copy.name}"
        copy.rename(dying)
        shutil.rmtree(dying, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder against the user's other jobs on this node; the kernel ends it with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
