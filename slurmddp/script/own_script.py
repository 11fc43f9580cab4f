"""Adds to a batch script of the user's own what makes its job come back: all else stays, byte for byte. Pure.

Added are a line in the header, a preamble before the first command, and the launch as a function before the statement
in which it stood; in its place the word `slurmddp_run`, or in the background `slurmddp_supervise`.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from slurmddp.config.batch_script import BatchScript

if TYPE_CHECKING:
    from slurmddp.script.launch_line import Launch

_FUNCTION = b"slurmddp_launch() {\n%b\n}\n"


def add_to_script(script: BatchScript, launch: "Launch", header: str, preamble: str) -> bytes:
    """Return the script with these options of sbatch, the preamble, and the launch wrapped."""
    text, end = script.text, script.header_end
    added = (f"#SBATCH{header}\n" * bool(header)).encode("utf-8", "surrogateescape") + preamble.encode()
    # in the background, `$!` is a shell's already
    word = b"slurmddp_supervise" if launch.is_background else b"slurmddp_run"
    is_positional = re.search(rb"\$\{?[#!]?[1-9@*#]", launch.text)
    word += b' "$@"' if is_positional or launch.is_repeated else b""
    words = " ".join(('"$@"', *launch.varying))
    told = f"slurmddp_training() {{ printf '%s\\n' {words}; }}\n".encode() * launch.is_repeated
    return b"".join(
        (
            text[:end],
            added,
            text[end : launch.function_at],
            told,
            _FUNCTION % launch.text,
            text[launch.function_at : launch.start],
            b"{ %b; exit; }" % word if launch.is_exec else word,
            text[launch.end :],
        )
    )


def diff(script: BatchScript, rendered: bytes) -> Iterator[bytes]:
    """Yield the lines of a unified diff against the user's file."""
    import difflib  # noqa: PLC0415 only --diff needs it

    before, after = (one.splitlines(keepends=True) for one in (script.text, rendered))
    path = script.path.encode("utf-8", "surrogateescape")
    for line in difflib.diff_bytes(difflib.unified_diff, before, after, path, path + b" (rendered)"):
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
