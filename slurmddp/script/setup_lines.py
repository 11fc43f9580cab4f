"""The Python of the ranks, and the shell lines that set up its environment. Reads the set-up file."""

import shlex
import sys
from typing import Final

from slurmddp.config.job_files import read_named_text
from slurmddp.config.job_spec import JobSpec, check_line_end
from slurmddp.errors import UsageError
from slurmddp.script import quoting
from slurmddp.text import quote_value

_MODULES: Final = """\
# A shell function that zsh, for one, does not hand down; MODULESHOME is Lmod's and Environment Modules' own.
# shellcheck disable=SC1091
[ "$(type -t module)" ] || source "${MODULESHOME:-/usr/share/modules}/init/bash" 2>/dev/null || true"""


def python_of(spec: JobSpec) -> str:
    """Return the Python of the ranks as the script names it."""
    if spec.container:
        return spec.python or "python3"
    return spec.python or ("python" if spec.conda or spec.venv else sys.executable)


def supervisor_python(spec: JobSpec) -> str:
    """Return the Python of the supervisor: that of the ranks, but with a container the Python that runs slurmddp."""
    return spec.supervisor_python or (sys.executable if spec.container else python_of(spec))


def activation_lines(spec: JobSpec) -> list[str]:
    """Return the shell lines that activate the environment of --conda or --venv."""
    lines = []
    if spec.conda:
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {quoting.shell(spec.conda)}"]
    if spec.venv:
        lines += [f"source {quoting.shell(spec.venv.rstrip('/') + '/bin/activate')}"]
    return lines


def setup_lines(spec: JobSpec) -> list[quoting.Quoted]:
    """Return the shell lines that set up the ranks' environment, in their order.

    Raises UsageError for a set-up file that cannot be read, or that sbatch would refuse.
    """
    lines = [_MODULES] if spec.module else []
    lines += [f"module load {quoting.shell(module)}" for module in spec.module]
    lines += activation_lines(spec)
    if spec.setup_file:
        text, name = read_named_text(spec.setup_file, "--setup-file").rstrip("\n"), quote_value(spec.setup_file)
        if "\r" in text:
            typed = shlex.quote(spec.setup_file)
            raise UsageError(f"--setup-file: {name} has carriage returns, as Windows writes; type: dos2unix {typed}")
        check_line_end(text, f"--setup-file: {name}")
        lines.append(text)
    return [quoting.lines(line) for line in [*lines, *spec.setup]]
