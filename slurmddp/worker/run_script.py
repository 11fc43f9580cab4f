"""Runs the user's program in this process, in the same way as `python`."""

import importlib.machinery
import os
import sys
import types
from pathlib import Path
from types import TracebackType

from slurmddp.worker import snapshot_paths

CANNOT_OPEN = 2
"""Python's exit status for a script it cannot open."""


def run(words: list[str]) -> None:
    """Run `train.py args...` or `-m pkg.train args...` as `__main__`.

    Raises what the program raises, including SystemExit.
    """
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if words[0] == "-m":
        import runpy  # noqa: PLC0415 the command line reads this module for its names alone

        sys.argv = ["-m", *words[2:]]
        prepend_to_path(snapshot_paths.require_in_snapshot(str(Path.cwd())))
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # noqa: SLF001 - what python -m itself calls
        return
    path = snapshot_paths.require_in_snapshot(words[0])
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: {error}", file=sys.stderr)  # noqa: T201 - as python does
        sys.exit(CANNOT_OPEN)
    sys.argv = [path, *words[1:]]
    prepend_to_path(os.path.realpath(os.path.dirname(path) or "."))  # noqa: PTH120 - '' must stay the working folder
    main.__file__ = os.path.abspath(path)  # noqa: PTH100 - Path would drop a trailing part of the name
    main.__dict__["__cached__"] = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
    exec(compile(source, path, "exec"), vars(main))  # noqa: S102 - running the user's program is the purpose


def trace_of_program(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames before the program's first line.

    None when Python could not compile the program; the whole traceback when the program is not in it.
    """
    main = vars(sys.modules["__main__"])
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is not main:
        trace = trace.tb_next
    return trace if trace or isinstance(error, SyntaxError) else error.__traceback__


def prepend_to_path(folder: str) -> None:
    """Make the folder the first of sys.path, in place of Python's own; with -P there is none to replace."""
    if os.environ.get("PYTHONSAFEPATH"):
        return
    sys.path[0 : 0 if sys.flags.safe_path else 1] = [folder]
