"""Shows what is added to a batch script of the user's own so that its job comes back. Pure."""

from collections.abc import Iterator

from slurmddp.config.batch_script import BatchScript


def diff(script: BatchScript, rendered: bytes) -> Iterator[bytes]:
    """Yield the lines of a unified diff against the user's file."""
    import difflib  # noqa: PLC0415 only --diff needs it

    path = script.path.encode("utf-8", "surrogateescape")
    before, after = (one.splitlines(keepends=True) for one in (script.text, rendered))
    for line in difflib.diff_bytes(difflib.unified_diff, before, after, path, path + b" (rendered)"):
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
