"""The diagnosis of outputs alone: files, folders, compressed files, standard input. Asks no Slurm; reads files."""

import bz2
import gzip
import lzma
import re
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any, BinaryIO, Final, cast

from slurmddp.diagnose.evidence import Evidence, read_log_evidence
from slurmddp.diagnose.rule_types import NONE, UNKNOWN, Diagnosis, Line
from slurmddp.diagnose.verdict import judge
from slurmddp.errors import UsageError
from slurmddp.runs.log_tail import file_size, relative_path
from slurmddp.slurm.job_info import JobInfo
from slurmddp.text import quote_value

STDIN: Final = "-"
MOST_FILES: Final = 4096  # so many files of a folder are read, in the order of their names
MOST_BYTES: Final = 2**31  # so much is decompressed, or read from standard input, into a temporary folder
_TEARDOWN: Final = {
    *("cancelled", "interrupted", "rank-aborted", "rank-killed", "rank-terminated", "segfault", "terminal-closed"),
    "time-limit",
}
"""So what is left of a job is ended that has done its work."""
_BLOCK_BYTES: Final = 2**20
_RANK_NAMES: Final = (
    re.compile(r"(?:rank|local_rank|proc|worker|task)[-_.]?(\d+)", re.IGNORECASE),
    re.compile(r"(?:^|[/_.-])(\d{1,5})(?:[/.](?:stdout|stderr|out|err|log|txt))*$"),
)
"""How names of files tell the rank that wrote them, the surest way first; torchrun has `attempt_0/3/stderr.log`."""


@contextmanager
def _open_zstd(path: Path) -> Iterator[BinaryIO]:
    command = ["zstd", "-dc", "--", str(path)]  # by PATH, where people install it; `--` ends its options
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE) as zstd:  # noqa: S603
        yield cast("BinaryIO", zstd.stdout)
        said = cast("BinaryIO", zstd.stderr).read()
    if zstd.returncode:
        raise OSError(said.decode(errors="replace").strip())


_OPENERS: Final[Mapping[str, Callable[[Path], Any]]] = {
    ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": _open_zstd
}  # fmt: skip


def diagnose_output(words: Sequence[str], stdin: BinaryIO) -> Diagnosis:
    """Return why a job failed, by its outputs: files, folders of files, and `-` for `stdin`.

    Several files are several ranks if their names number them. Raises UsageError for a file that cannot be read.
    """
    with ExitStack() as stack:
        plain = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurmddp-")))
        paths, left = dict[Path, str](), MOST_BYTES
        for number, word in enumerate(_files_of(words)):
            paths[_make_readable(word, stdin, plain / str(number), left)] = word
            left -= file_size(plain / str(number))
        evidence = read_log_evidence(list(paths), _find_ranks(paths), has_failed=False)
        name = "standard input" if words[0] == STDIN else words[0]
        name += f" and {len(words) - 1} more" if len(words) > 1 else ""
        found = judge(JobInfo(job_id=name, name=name, state="", source="files"), evidence)
        if found.cause == UNKNOWN:
            found = _explain_unknown(found, evidence)
        elif (good := evidence.good_end) and found.cause in _TEARDOWN and good.number < found.evidence[0].number:
            found = _tell_end(found, f"it ended well; after that, {found.what}", good, *found.evidence[:1])
        shown = {relative_path(path): "standard input" if word == STDIN else word for path, word in paths.items()}
        lines = (replace(line, file=shown.get(line.file, line.file)) for line in found.evidence)
        return replace(found, evidence=tuple(lines))


def _files_of(words: Sequence[str]) -> list[str]:
    """Return the files that the words name, those below a folder instead of the folder."""
    found: list[str] = []
    for word in words:
        inside = (
            sorted(str(path) for path in Path(word).rglob("*") if path.is_file()) if Path(word).is_dir() else [word]
        )
        if not inside:
            raise UsageError(f"{quote_value(word)} is a folder without files; name the output of the job")
        found += inside[:MOST_FILES]
    return list(dict.fromkeys(found))


def _make_readable(word: str, stdin: BinaryIO, plain: Path, most: int) -> Path:
    """Return a regular file with the text: the file itself, or a copy of at most so many bytes, not compressed."""
    path, suffix = Path(word), Path(word).suffix
    try:
        if word != STDIN and suffix not in _OPENERS:
            path.open("rb").close()
            return path
        with nullcontext(stdin) if word == STDIN else _OPENERS[suffix](path) as source:
            _copy(word, source, plain, most)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        if getattr(error, "filename", "") == "zstd":
            needs = f"{quote_value(word)} needs the program zstd; install it, or decompress the file"
            raise UsageError(needs) from error
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{quote_value(word)} cannot be read: {why}") from error
    return plain


def _copy(word: str, source: BinaryIO, plain: Path, most: int) -> None:
    with plain.open("wb") as copy:
        while block := source.read(_BLOCK_BYTES):
            if copy.tell() + len(block) > most:
                raise UsageError(
                    f"{quote_value(word)} has too much text: {MOST_BYTES >> 30} GiB are read of compressed files and "
                    "standard input; give the end of the output, as in: zcat FILE | tail -c 1G | slurmddp diagnose -"
                )
            copy.write(block)


def _find_ranks(paths: Mapping[Path, str]) -> dict[Path, int]:
    """Return the rank that wrote each of several files, if the names of all tell a different one."""
    for pattern in _RANK_NAMES:
        names = {path: re.sub(r"\.(?:gz|xz|bz2|zst)\Z", "", word) for path, word in paths.items()}
        found = {path: pattern.findall(name) for path, name in names.items()}
        ranks = {path: int(numbers[-1]) for path, numbers in found.items() if numbers}
        if len(paths) > 1 and len(ranks) == len(paths) == len(set(ranks.values())):
            return ranks
    return {}


def _tell_end(found: Diagnosis, what: str, *lines: Line) -> Diagnosis:
    return Diagnosis(job_id=found.job_id, name=found.name, cause=NONE, what=what, evidence=lines)


def _explain_unknown(found: Diagnosis, evidence: Evidence) -> Diagnosis:
    if not evidence.suspicious_lines:
        return replace(found, what="the output is empty", advice="name the file that has the job's output")
    if evidence.good_end:
        return _tell_end(found, "it ended well", evidence.good_end)
    if evidence.summary:
        found = _tell_end(found, "it seems to have ended well: a result stands at its end", evidence.summary)
        return replace(found, sure="likely")
    if evidence.has_wrong_end:
        return found
    what = "no failure is to be seen: no line at the end names one; the program still ran, or the output is cut off"
    advice = "a process that SIGKILL ends prints nothing: name the outputs of the other ranks and of the script, too"
    return replace(_tell_end(found, what, *found.evidence), sure="likely", advice=advice)
