"""A batch script of the user's own, as a value: its text, and its `#SBATCH` lines as sbatch reads them."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePath
from typing import Final, NamedTuple

import msgspec

from slurmddp.config.foreign_options import OF_SBATCH, SHORT_OF_SBATCH, SWITCHES_OF_SBATCH
from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import index_ranges
from slurmddp.text import quote_value

SHELLS: Final = ("sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh")
LARGEST_B: Final = 4 * 2**20
"""Slurm's own limit for a script, max_script_size."""
_MAGIC: Final = b"#SBATCH"
_NEWLINE: Final = b"\n"
_PIECE: Final = r"""'((?:\\.|[^\\'])*)'?|"((?:\\.|[^\\"])*)"?|((?:\\.|[^\\'"#\s])+)|\\$"""
"""A part of a word, in quotes of either kind or without; a backslash escapes everywhere, and is lost at the end."""
_SIGNAL_LEAD_S: Final = 60
"""sbatch's own, in seconds."""
_MOST_TASKS: Final = 100_000
_REFUSED: Final = {
    b"\0": "a NUL byte, which sbatch refuses; give a text file",
    b"\r\n": "it ends as on Windows (CR LF), which sbatch refuses; `dos2unix` or `sed -i 's/\\r$//'` mends the file",
}


class Directive(NamedTuple):
    """One option of an `#SBATCH` line."""

    key: str
    """The long name of the option, whole where it is one that slurmddp asks for."""
    value: str | None
    line: int


class BatchScript(msgspec.Struct, frozen=True, kw_only=True):
    """A batch script."""

    path: str
    text: bytes
    directives: tuple[Directive, ...]
    """The options of the `#SBATCH` lines before the first command, in their order."""
    header_end: int
    """Where in the text the last of these lines ends, behind its newline; without one, where the first line ends."""

    header: tuple[tuple[str, str | None], ...] = ()
    """The options that the job has besides, each with its value, None for a switch."""

    def get(self, *keys: str) -> Directive | None:
        """Return the last of the options with these names, which is the one that counts for sbatch; None without."""
        return next((one for one in reversed(self.directives) if one.key in keys), None)

    @property
    def job_name(self) -> str:
        """The name of its jobs in Slurm."""
        named = self.get("job-name")
        return (named.value if named else "") or PurePath(self.path).name

    def missing_folders(self, job_name: str) -> list[Path]:
        """Return the folders of its outputs that are not there; Slurm replaces a `%` in the job, and makes none."""
        given = {one.key: one.value or "" for one in self.directives} | {key: value or "" for key, value in self.header}
        paths = [path.replace("%x", job_name) for key in ("output", "error") if (path := given.get(key))]
        folders = dict.fromkeys(Path(given.get("chdir", ""), path).parent for path in paths)
        return [folder for folder in folders if not folder.exists()]

    @property
    def signal_lead(self) -> int | None:
        """The seconds between the signal that its ranks get and the time limit; None where they get none by it."""
        own = self.get("signal")
        found = re.fullmatch(r"(?:R:)?\w+(?:@(\d{1,5}))?", own.value or "") if own else None
        return int(found[1] or _SIGNAL_LEAD_S) if found else None

    @property
    def tasks(self) -> tuple[int, ...]:
        """The numbers of the tasks of its array; none for a single job. Raises UsageError for what is no array."""
        given = self.get("array")
        if given is None:
            return ()
        ranges, shown = index_ranges(given.value or ""), quote_value(given.value)
        if not ranges:
            raise UsageError(f"line {given.line}: {shown} is no array, as in --array=0-3%2")
        if max(one.stop for one in ranges) > _MOST_TASKS:
            raise UsageError(f"line {given.line}: the array {shown} goes beyond {_MOST_TASKS}")
        return tuple(chain.from_iterable(ranges))


def check_batch_script(path: str, text: bytes) -> BatchScript:
    """Return the batch script with this text. Raises UsageError for one that sbatch or slurmddp cannot take."""
    given = quote_value(path)
    if not text.startswith(b"#!"):
        raise UsageError(f"{given} is a batch script without a shell: its first line must be one like #!/bin/bash")
    if (shell := interpreter(text)) not in SHELLS:
        raise UsageError(
            f"{given}, line 1: its shell is {quote_value(shell)}; slurmddp adds its lines to scripts of "
            f"{', '.join(SHELLS)}"
        )
    for mark, what in _REFUSED.items():
        if mark in text:
            raise UsageError(f"{given}, line {text[: text.index(mark)].count(_NEWLINE) + 1}: {what}")
    if len(text) > LARGEST_B:
        raise UsageError(f"{given} has {len(text) / 10**6:.1f} MB; Slurm takes a script of 4 MB at most")
    return parse_batch_script(path, text)


def parse_batch_script(path: str, text: bytes) -> BatchScript:
    """Return the batch script with this text. Raises UsageError for a heterogeneous job."""
    end = text.find(b"\n") + 1 or len(text)
    words: list[tuple[str, int]] = []
    at = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        at += len(line)
        if line.startswith(_MAGIC):
            end = at
            words += ((word, number) for word in _split(line[len(_MAGIC) :].decode("utf-8", "surrogateescape")))
        elif line.strip() and not line.lstrip().startswith(b"#"):
            break
    for word, number in words:
        if word in ("hetjob", "packjob"):
            raise UsageError(
                f"{quote_value(path)}, line {number}: a heterogeneous job ({word}) is several jobs, and slurmddp "
                "supervises one; submit it by sbatch"
            )
    return BatchScript(path=path, text=text, directives=tuple(_directives(words)), header_end=end)


def is_batch_script(path: str, head: bytes) -> bool:
    """Return whether a file that begins so is a batch script; a Python program may have #SBATCH lines, too."""
    if head.startswith(b"#!"):  # of a shell with a quote in the next line: pip's, for a long path of Python
        return not interpreter(head).startswith(("python", "pypy")) and not re.match(rb"#![^\n]*\n['\"]", head)
    if path.endswith((".sbatch", ".slurm", ".sh", ".bash")):
        return True
    return not path.endswith((".py", ".toml")) and re.search(rb"^#SBATCH", head, re.MULTILINE) is not None


def interpreter(text: bytes) -> str:
    """Return the name of the program in the first line, without its folder; behind `env`, of its argument."""
    words = text.partition(b"\n")[0][2:].decode("utf-8", "replace").split()
    names = [word.rpartition("/")[2] for word in words if not word.startswith("-") and "=" not in word]
    return next((name for name in names if name != "env"), "")


def _split(line: str) -> Iterator[str]:
    """Yield the words of an `#SBATCH` line; `#` begins a comment."""
    for word in re.finditer(rf"#|(?:{_PIECE})+", line.rstrip("\n")):
        if word[0] == "#":
            return
        plain = re.sub(_PIECE, lambda piece: piece[1] or piece[2] or piece[3] or "", word[0])
        yield re.sub(r"\\(.)", r"\1", plain)


def _directives(words: list[tuple[str, int]]) -> Iterator[Directive]:
    rest = iter(words)
    for word, line in rest:
        if word.startswith("--"):
            name, equals, text = word[2:].partition("=")
            begun = (full for full in OF_SBATCH if name and full.startswith(name))  # it may be shortened
            key, value = name if name in OF_SBATCH else next(begun, name), text if equals else None
        elif word.startswith("-") and word[1:2] in SHORT_OF_SBATCH:
            key, value = SHORT_OF_SBATCH[word[1]], word[2:].removeprefix("=") if word[2:] else None
        else:
            continue
        if value is None and key not in SWITCHES_OF_SBATCH:
            value = next(rest, ("", line))[0]
        yield Directive(key, value, line)
