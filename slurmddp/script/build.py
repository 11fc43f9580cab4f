"""Builds the batch script of a job: checks that its program exists, then renders. Writes nothing."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from slurmddp.attach import OLDEST, minor_version
from slurmddp.config.batch_script import BatchScript
from slurmddp.config.command import Command
from slurmddp.config.container import is_path
from slurmddp.config.datasets import find_data
from slurmddp.config.foreign_options import key_of
from slurmddp.config.job_files import OTHER_FORMATS, explain_unreadable, read_named_text, suggest_file
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import quoting
from slurmddp.script.render import render, render_preamble
from slurmddp.text import quote_value

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array
    from slurmddp.script.snapshot import Code

_NO_PYTHON: Final = re.compile(
    rb"\x7fELF|#!(?![^\n]*(?:py|\n['\"]))[^\n]*[/ ](?:[a-z]*sh|perl|ruby|node|Rscript|julia|lua)(?!\S)"
)
"""How other programs begin. A shell's `#!` with a quote in the next line is pip's, for a long path of Python."""


class Script(NamedTuple):
    """A batch script, and what must be copied for it."""

    text: bytes
    code: "Code | None" = None
    """The code of a job with a snapshot."""
    notices: tuple[str, ...] = ()
    """What the user is told of a script of their own."""


def build_script(spec: JobSpec, array: "Array | None" = None) -> Script:
    """Return the batch script of a job; `array` has the programs of an array's tasks.

    Raises UsageError when the training script or the data is missing, for code that cannot be copied,
    and for the user's own shell lines that bash cannot parse.
    """
    reset_number = RunDir.named(spec.runs_dir, spec.job_name).next_reset
    if spec.script:
        return _add_to_own_script(spec, spec.script, reset_number)
    for program in array.programs if array else (spec,):
        check_program(program)
    code = None
    if spec.snapshot:
        from slurmddp.script.snapshot import read_code  # noqa: PLC0415 few jobs need it, and it slows down every start

        code = read_code(spec)
    script = render(spec, reset_number=reset_number, code=code, array=array)
    if spec.setup_file:
        check_shell("--setup-file: bash cannot parse these lines", read_named_text(spec.setup_file, "--setup-file"))
    if spec.setup:
        check_shell("--setup: bash cannot parse these lines", "\n".join(spec.setup))
    if spec.template:
        check_shell(f"template {quote_value(spec.template)}: bash cannot parse the script that it makes", script)
    return Script(script.encode(), code)


def _add_to_own_script(spec: JobSpec, own: BatchScript, reset_number: int) -> Script:
    """Add to a batch script of the user's own what makes its job come back: all else stays, byte for byte.

    Added are a line in the header, a preamble before the first command, and the launch as a function before the
    statement in which it stood; in its place the word `slurmddp_run`, or in the background `slurmddp_supervise`.
    """
    from slurmddp.script.launch_line import find_launch  # noqa: PLC0415 the parser takes 80 ms to load

    launch, notices = find_launch(own.path, own.text, spec.launch_line, spec.nodes)
    signal = [] if own.get("signal") and not spec.signal_lead else [("signal", f"USR2@{spec.lead_s}")]
    words = [key if value is None else f"{key}={quoting.header(value)}" for key, value in (*own.header, *signal)]
    header = "".join(f" --{word}" for word in words)
    preamble = render_preamble(spec, reset_number=reset_number, repeated_launch=launch.is_repeated)
    if (given := own.get("no-kill")) and given.value not in ("no", "off"):
        what = "by --no-kill, a job whose first node is lost runs on to its time limit without its script"
        notices += (f"{quote_value(own.path)}, line {given.line}: {what}; leave it out",)
    added = (f"#SBATCH{header}\n" * bool(header)).encode("utf-8", "surrogateescape") + preamble.encode()
    end = own.header_end
    return Script(own.text[:end] + added + launch.wrapped[end:], notices=notices)


def diff(own: BatchScript, rendered: bytes) -> Iterator[bytes]:
    """Yield the lines of a unified diff of a batch script of the user's own and what is made of it."""
    import difflib  # noqa: PLC0415 only --diff needs it

    path = own.path.encode("utf-8", "surrogateescape")
    before, after = (one.splitlines(keepends=True) for one in (own.text, rendered))
    for line in difflib.diff_bytes(difflib.unified_diff, before, after, path, path + b" (rendered)"):
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def check_program(spec: JobSpec) -> None:
    """Raise UsageError when the script or the data is missing; absolute paths in a container are not checked."""
    if spec.script:
        return
    path = spec.command[0] if spec.command else spec.worker.data or ""
    if spec.container and path.startswith("/"):
        return
    if not spec.command:
        find_data(spec.worker)
    elif spec.no_python and not _is_program(path, spec):
        if "/" in path:
            raise UsageError(
                f"COMMAND: {quote_value(path)} is not an executable file; check the path, or `chmod +x` it"
            )
        raise UsageError(
            f"COMMAND: there is no program {quote_value(path)} in PATH; check its name, or write ./{shlex.quote(path)}"
        )
    else:
        _check_accelerate_file(spec.parsed_command, spec)
        if script := spec.parsed_command.script:
            _check_script(script, spec)


def _check_accelerate_file(command: Command, spec: JobSpec) -> None:
    """Raise UsageError when the configuration file that `accelerate launch` was given is missing."""
    words = [part for word in command.words[: command.place] for part in word.split("=", 1)]
    for option, path in pairwise(words):
        if key_of(option) == "config-file" and not (Path(path).is_file() or spec.container):
            missing = f"there is no file {quote_value(path)} in {Path.cwd()}"
            raise UsageError(f"COMMAND: {option} of accelerate: {missing}; {suggest_file(path)}")


def check_environment(spec: JobSpec) -> None:
    """Raise UsageError when the environment of the ranks is missing on this machine.

    That is the virtual environment, the Python, or the container's image and the folders that it mounts.
    """
    advice = "check the path, or give --force if only the nodes have it"
    if spec.is_venv_known and not (Path(spec.venv or "") / "bin" / "python").exists():
        raise UsageError(
            f"--venv: {quote_value(spec.venv or '')} is not a virtual environment here: it has no bin/python; {advice}"
        )
    check_pythons(spec, advice)
    image = spec.container if spec.container and is_path(spec.container) else ""
    mounts = [mount.partition(":")[0] for mount in spec.container_mount if spec.container]
    for key, path in (("container", image), *(("container-mount", mount) for mount in mounts)):
        if path and not Path(path).exists():
            raise UsageError(f"--{key}: there is no file {quote_value(path)} here; {advice}")


def check_shell(message: str, lines: str) -> None:
    """Raise UsageError, which begins with the message, when bash cannot parse shell lines; none of them is run."""
    import subprocess  # noqa: PLC0415 most jobs have no shell lines of their own

    parse = ["bash", "--norc", "-O", "extglob", "-n"]
    with suppress(FileNotFoundError):  # a machine without bash renders scripts, too
        done = subprocess.run(parse, input=lines.encode(), capture_output=True, check=False, env={"PATH": os.defpath})  # noqa: S603 - bash only parses the lines
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().partition("\n")[0].removeprefix("bash: ")
            raise UsageError(f"{message}: {said}; correct them")


def _check_script(path: str, spec: JobSpec) -> None:
    if Path(path).is_file():
        _check_is_python(path)
        return
    if "/" not in path and (is_console_script(path, spec) or ("." not in path and (spec.has_setup or spec.container))):
        return
    from slurmddp.runs.facts import is_resumable, resume_command  # noqa: PLC0415 needed only when something is wrong

    given = f"COMMAND: {quote_value(path)}"
    if run := next(filter(is_resumable, (RunDir.named(spec.runs_dir, path), RunDir.named(".", path))), None):
        raise UsageError(f"{given} is a run, and no script; to resume it, type: {resume_command(run)}")
    if Path(path).is_dir():
        raise UsageError(f"{given} is a folder; name a script, as in: {path.rstrip('/')}/train.py")
    if Path(path).exists():
        raise UsageError(f"{given} is not a regular file; name a script, as in: train.py")
    advice = suggest_file(path)
    if re.search(r"\.py |^(\S*/)?(python[\d.]*|torchrun) ", path):
        advice = f"it is one word; type it without quotes: {quote_value(path)[1:-1]}"
    elif "/" not in path and shutil.which(path) and not Path(f"{path}.py").exists():
        advice = f"to run the program of this name, type: --no-python {shlex.quote(path)} ..."
    raise UsageError(f"COMMAND: there is no file {quote_value(path)} in {Path.cwd()}; {advice}")


def _check_is_python(path: str) -> None:
    """Raise UsageError for a file of another kind; Python text may have any name."""
    if path.endswith(OTHER_FORMATS):
        raise UsageError(f"COMMAND: {quote_value(path)} is no Python script; a job file must end in .toml")
    try:
        with Path(path).open("rb") as file:
            head, quoted = file.read(512), shlex.quote(path)
    except OSError as error:
        raise UsageError(f"COMMAND: {explain_unreadable(path, error)}") from error
    if _NO_PYTHON.match(head):
        typed = f"--no-python {quoted if '/' in path else f'./{quoted}'}"
        raise UsageError(
            f"COMMAND: {quote_value(path)} is no Python script; name the one that it starts, or type: "
            f"{f'sbatch {quoted}' if b'#SBATCH' in head else typed}"
        )


def _is_program(path: str, spec: JobSpec) -> bool:
    """Return whether a path, or a name in PATH, is an executable file; a name also where the set-up may bring it."""
    if "/" not in path and (spec.has_setup or spec.container):
        return True
    return _find_program(path, spec) is not None


def is_console_script(name: str, spec: JobSpec) -> bool:
    """Return whether a name is that of a Python program which is installed in the environment of the ranks."""
    found = _find_program(name, spec)
    if not found:
        return False
    with Path(found).open("rb") as file:
        head = file.read(512)
    return head.startswith(b"#!") and not _NO_PYTHON.match(head)


def _find_program(name: str, spec: JobSpec) -> str | None:
    """Return the path of a program in the ranks' environment, or in PATH."""
    own = spec.python or sys.executable
    places = (f"{spec.venv}/bin" if spec.venv else os.path.dirname(own), os.environ.get("PATH", os.defpath))  # noqa: PTH120 - a name alone has no folder
    return shutil.which(name, path=os.pathsep.join(filter(None, places)))


def check_pythons(spec: JobSpec, advice: str) -> None:
    """Raise UsageError, with advice, for a Python of the ranks or the supervisor that is not a program here."""
    pythons = {"python": None if spec.container else spec.python, "supervisor-python": spec.supervisor_python}
    for key, path in pythons.items():
        if path and not _is_program(path, spec):
            raise UsageError(f"--{key}: there is no program {quote_value(path)} here; {advice}")
    pythons["venv"] = spec.venv and f"{spec.venv.rstrip('/')}/bin/python"
    for key, path in pythons.items():
        if path and (minor_version(path) or OLDEST[1]) < OLDEST[1]:
            version = f"Python 3.{minor_version(path)}; ranks and supervisor need 3.9 or newer"
            raise UsageError(f"--{key}: {quote_value(path)} is {version}; choose another one")


def check_variables(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """Raise UsageError for a variable that is to be passed on and is not set."""
    for item in spec.env:
        if "=" not in item and item not in environ:
            raise UsageError(f"--env {item}: {item} is not set here; export it, or give --env {item}=VALUE")
