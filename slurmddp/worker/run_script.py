"""Runs the user's program in this process, as `python` or `accelerate launch` would; with --snapshot, from its copy.

The batch script sets SLURMDDP_CODE to the snapshot, and SLURMDDP_CODE_ORIGIN to the folder that was copied. Files of
that folder that are not in the snapshot, as a virtual environment, are used where they are. A container has the working
directory only under the name SLURMDDP_WORKDIR; SLURMDDP_REAL_WORKDIR is its path without symbolic links.
"""

from __future__ import annotations
import argparse
import importlib.machinery
import logging
import os
import runpy
import shutil
import sys
import types
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from types import TracebackType

from slurmddp import variables
from slurmddp.errors import RankError
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank
from slurmddp.text import count

CANNOT_OPEN = 2
"""Python's exit status for a script it cannot open."""
_OF_THE_JOB = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables of accelerate's own launcher that the job has set already."""


def run(words: list[str]) -> None:
    """Run `train.py args...` or `-m pkg.train args...` as `__main__`.

    Raises what the program raises, including SystemExit.
    """
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        prepend_to_path(require_in_snapshot(str(Path.cwd())))
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # noqa: SLF001 - what python -m itself calls
        return
    path = _find_console_script(words[0]) or require_in_snapshot(words[0])
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


def _find_console_script(name: str) -> str | None:
    """Return the path of a script that is installed with this Python, or is in PATH; None for a file that is here."""
    if "/" in name or Path(name).exists():
        return None
    return shutil.which(name, path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))  # noqa: PTH120 - a link is not followed


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
    sys.path[0 : 0 if getattr(sys.flags, "safe_path", False) else 1] = [folder]


def require_in_snapshot(path: str) -> str:
    """Return the path of a file or folder of the program in the snapshot; the path itself without a snapshot.

    Raises RankError for a path outside of the code that was copied.
    """
    copy = os.environ.get(variables.CODE)
    if not copy:
        return path
    found = _find_in_snapshot(path)
    if found is None:
        whole, original = os.path.realpath(path), os.environ[variables.CODE_ORIGIN]
        raise RankError(f"{whole} is not in {original}, of which {copy} is a copy; submit it without --snapshot")
    return str(found)


def redirect_imports(environment: MutableMapping[str, str]) -> None:
    """Import the code from the snapshot: change sys.path, PYTHONPATH, and the finders of editable installs."""
    sys.path[:] = map(map_to_snapshot, sys.path)
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] = os.pathsep.join(map(map_to_snapshot, environment["PYTHONPATH"].split(os.pathsep)))
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        packages = getattr(module, "MAPPING", None)  # setuptools writes such finders; other tools change sys.path
        if isinstance(packages, dict):
            packages.update({name: map_to_snapshot(folder) for name, folder in packages.items()})


def map_to_snapshot(path: str) -> str:
    """Return the path of a file or folder in the snapshot if it exists there; else the path itself."""
    if not os.environ.get(variables.CODE):
        return path
    found = _find_in_snapshot(path or ".")
    return str(found) if found and found.exists() else path


def _find_in_snapshot(path: str) -> Path | None:
    original = os.path.realpath(os.environ[variables.CODE_ORIGIN])
    whole = Path(os.path.realpath(path))
    # In a container: the real path outside, when symbolic links lead to the working directory.
    here, real = (Path(os.environ.get(name, "/")) for name in (variables.WORKDIR, variables.REAL_WORKDIR))
    while here.name and here.name == real.name:
        here, real = here.parent, real.parent
    for name in (whole, real / whole.relative_to(here) if whole.is_relative_to(here) else whole):
        if name.is_relative_to(original):
            return Path(os.environ[variables.CODE], name.relative_to(original))
    return None


def prepare_accelerate(words: list[str], rank: Rank) -> list[str]:
    """Set the variables that `accelerate launch` with these words would set; return its script and the words for that.

    The number of ranks and their places are those of the job. Raises RankError when accelerate refuses the words.
    """
    try:
        from accelerate.commands import launch  # noqa: PLC0415 only this COMMAND needs it
    except ModuleNotFoundError as error:
        raise RankError(
            f"COMMAND is `accelerate launch`, and {sys.executable} has no {error.name}; install accelerate there, or "
            "choose another Python by --python"
        ) from error
    logging.getLogger(launch.__name__).setLevel(logging.ERROR)  # it would report its own number of processes
    args = launch.launch_command_parser().parse_args(words)
    if args.no_python:
        raise RankError("accelerate launch --no_python: leave it out, and give slurmddp's option --no-python")
    try:
        typed = args.num_processes
        args, defaults, _ = launch._validate_launch_command(args)  # noqa: SLF001 what `accelerate launch` calls
        if rank.is_main and (ignored := [*_contradictions(args, given=bool(typed or defaults), rank=rank)]):
            has = f"the job has {count(rank.world_size, 'rank')} on {count(rank.nodes, 'node')}"
            print_line(f"accelerate launch: ignored: {', '.join(ignored)}; {has}, which slurmddp starts", sys.stderr)
        args.num_processes, args.num_machines, args.main_process_port = rank.world_size, 1, 0
        found = _environment(args)
    except (ValueError, RuntimeError, OSError) as error:
        raise RankError(f"accelerate launch: {error}") from error
    os.environ.update({name: value for name, value in found.items() if name not in _OF_THE_JOB})
    return [*(["-m"] if args.module else []), args.training_script, *args.training_script_args]


def _contradictions(args: argparse.Namespace, *, given: bool, rank: Rank) -> Iterator[str]:
    """Yield the values that differ from those of the job; `given`: accelerate has not chosen num_processes itself."""
    if given and args.num_processes not in (None, rank.world_size):
        yield f"num_processes {args.num_processes}"
    if args.num_machines not in (None, 1, rank.nodes):
        yield f"num_machines {args.num_machines}"
    for name in ("main_process_ip", "main_process_port"):
        if getattr(args, name) is not None:
            yield f"{name} {getattr(args, name)}"


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment of `accelerate launch`, by the function that it chooses for these options."""
    from accelerate.utils import launch as environments  # noqa: PLC0415 only this COMMAND needs it

    if args.use_deepspeed and not args.cpu:
        found: dict[str, str] = environments.prepare_deepspeed_cmd_env(args)[1]
    elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
        found = environments.prepare_multi_gpu_env(args)
    else:
        found = environments.prepare_simple_launcher_cmd_env(args)[1]
    return found
