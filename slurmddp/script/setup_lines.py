"""The Python of the ranks, and the shell lines that set up its environment. Reads the set-up file."""

import re
import shlex
import sys
from pathlib import Path
from typing import Final

from slurmddp.config.job_files import read_named_text
from slurmddp.config.job_spec import VENV_VARIABLE, JobSpec, check_line_end
from slurmddp.errors import UsageError
from slurmddp.script import quoting
from slurmddp.text import quote_value

_ACTION: Final = r"""(?!-[ \t])(?:'[^'\n]*'|"[^"\n]*"|[^\s'"]+)"""
_EXIT_TRAP: Final = re.compile(rf"(?m)(?:^|[;&|{{(])[ \t]*(trap[ \t]+{_ACTION}(?:[ \t]+\w+)*?[ \t]+(?:EXIT|0)\b)")
_MODULES: Final = """\
# A shell function that zsh, for one, does not hand down; MODULESHOME is Lmod's and Environment Modules' own.
# shellcheck disable=SC1091
[ "$(type -t module)" ] || source "${MODULESHOME:-/usr/share/modules}/init/bash" 2>/dev/null || true"""


def python_of(spec: JobSpec) -> str:
    """Return the Python of the ranks as the script names it."""
    if spec.container:
        return spec.python or "python3"
    if spec.python or not spec.setup_steps:
        return spec.python or sys.executable
    is_python = spec.conda or spec.venv or Path(sys.executable).with_name("python").exists()
    return "python" if is_python else "python3"


def setup_lines(spec: JobSpec) -> list[quoting.Quoted]:
    """Return the shell lines that set up the ranks' environment, in their order.

    Raises UsageError for a set-up file that cannot be read, or that sbatch would refuse.
    """
    lines = []
    if spec.has_setup and not (spec.python or spec.container):
        own, folder = python_of(spec), quoting.shell(Path(sys.executable).parent)
        lines.append(f'export PATH={folder}:"$PATH" # the ranks run the {own} that is found after these lines')
    lines += [_MODULES] if spec.module else []
    lines += [line for name, value in spec.setup_steps for line in _lines_of(name, value)]
    return [quoting.lines(line) for line in lines]


def _lines_of(name: str, value: str) -> list[str]:
    """Return the shell lines of one set-up option."""
    if name == "module":
        return [f"module load {quoting.shell(value)}"]
    if name == "conda":
        return ['eval "$(conda shell.bash hook)"', f"conda activate {quoting.shell(value)}"]
    if name == "venv":
        names = {found[0]: quoting.lines(f'"${{{found[1] or found[2]}:?}}"') for found in VENV_VARIABLE.finditer(value)}
        return [f"source {quoting.job_words([value.rstrip('/') + '/bin/activate'], names)}"]
    text = _read_setup_file(value) if name == "setup_file" else value
    if found := _EXIT_TRAP.search(text):
        raise UsageError(
            f"--{name.replace('_', '-')}: {quote_value(found[1])} would never run: the script ends by `exec` of its "
            "supervisor; leave it out"
        )
    return [text]


def _read_setup_file(path: str) -> str:
    text, name = read_named_text(path, "--setup-file").rstrip("\n"), quote_value(path)
    if "\r" in text:
        raise UsageError(
            f"--setup-file: {name} has carriage returns, as Windows writes; type: dos2unix {shlex.quote(path)}"
        )
    check_line_end(text, f"--setup-file: {name}")
    return text
