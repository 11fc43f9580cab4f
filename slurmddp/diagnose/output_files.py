"""The diagnosis of outputs alone: files, folders, standard input. Asks no Slurm; reads files."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from slurmddp.diagnose.evidence import Evidence, read_log_evidence
from slurmddp.diagnose.rule_types import NONE, UNKNOWN, Diagnosis, Line
from slurmddp.diagnose.rules import causes_with
from slurmddp.diagnose.verdict import judge
from slurmddp.errors import UsageError
from slurmddp.runs.log_tail import relative_path
from slurmddp.slurm.job_info import JobInfo
from slurmddp.text import quote_value

STDIN: Final = "-"
MOST_FILES: Final = 4096  # so many files of a folder are read, in the order of their names
MOST_BYTES: Final = 2**31  # so much is read from standard input, into a temporary folder
_BLOCK_BYTES: Final = 2**20
_RANK_NAMES: Final = (
    re.compile(r"(?:rank|local_rank|proc|worker|task)[-_.]?(\d+)", re.IGNORECASE),
    re.compile(r"(?:^|[/_.-])(\d{1,5})(?:[/.](?:stdout|stderr|out|err|log|txt))*$"),
)
"""How names of files tell the rank that wrote them, the surest way first; torchrun has `attempt_0/3/stderr.log`."""
_READERS: Final = {".gz": "zcat", ".xz": "xzcat", ".bz2": "bzcat", ".zst": "zstdcat"}
"""The programs that print compressed files."""


def diagnose_output(words: Sequence[str], stdin: BinaryIO) -> Diagnosis:
    """Return why a job failed, by its outputs: files, folders of files, and `-` for `stdin`.

    Several files are several ranks if their names number them. Raises UsageError for a file that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="slurmddp-") as folder:
        paths = {_make_readable(word, stdin, Path(folder)): word for word in _files_of(words)}
        evidence = read_log_evidence(list(paths), _find_ranks(paths), has_failed=False)
        name = "standard input" if words[0] == STDIN else words[0]
        name += f" and {len(words) - 1} more" if len(words) > 1 else ""
        found = judge(JobInfo(name, name=name), evidence)
        ends_what_is_left = found.cause in causes_with("teardown")
        if found.cause == UNKNOWN:
            found = _explain_unknown(found, evidence)
        elif (good := evidence.good_end) and ends_what_is_left and good.number < found.evidence[0].number:
            found = _tell_end(found, f"it ended well; after that, {found.what}", good, *found.evidence[:1])
        shown = {relative_path(path): "standard input" if word == STDIN else word for path, word in paths.items()}
        lines = (replace(line, file=shown.get(line.file, line.file)) for line in found.evidence)
        return replace(found, evidence=tuple(lines))


def _files_of(words: Sequence[str]) -> list[str]:
    """Return the files that the words name, those below a folder instead of the folder."""
    found: list[str] = []
    for word in words:
        path = Path(word)
        inside = sorted(map(str, filter(Path.is_file, path.rglob("*")))) if path.is_dir() else [word]
        if not inside:
            raise UsageError(f"{quote_value(word)} is a folder without files; name the output of the job")
        found += inside[:MOST_FILES]
    return list(dict.fromkeys(found))


def _make_readable(word: str, stdin: BinaryIO, folder: Path) -> Path:
    """Return a regular file with the text: the file itself, or a copy of standard input in a folder."""
    path, name = Path(word), quote_value(word)
    if reader := _READERS.get(path.suffix):
        raise UsageError(f"{name} is compressed; type: {reader} {name} | slurmddp diagnose -")
    try:
        if word == STDIN:
            path = folder / "stdin"
            _copy(stdin, path)
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    return path


def _copy(source: BinaryIO, path: Path) -> None:
    with path.open("wb") as copy:
        while block := source.read(_BLOCK_BYTES):
            if copy.tell() + len(block) > MOST_BYTES:
                raise UsageError(
                    f"standard input has too much text: {MOST_BYTES >> 30} GiB of it are read; give the end of the "
                    "output, as in: zcat FILE | tail -c 1G | slurmddp diagnose -"
                )
            copy.write(block)


def _find_ranks(paths: Mapping[Path, str]) -> dict[Path, int]:
    """Return the rank that wrote each of several files, if the names of all tell a different one."""
    for pattern in _RANK_NAMES:
        found = {path: pattern.findall(word) for path, word in paths.items()}
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
