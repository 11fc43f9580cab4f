"""JobSpec -> the batch script, as text. Pure, but for reading templates, the set-up file and where we are.

The only door to jinja2. A template cannot write a user's value unless one of the filters of `slurmddp.script.quoting`
made it: `header` in `#SBATCH` lines, `shell` everywhere else.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slurmddp import variables
from slurmddp.batch.arguments import Options, words
from slurmddp.config import container
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.python_env import environment_of
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import quoting
from slurmddp.slurm.hostlist import expand
from slurmddp.text import shown
from slurmddp.version import __version__

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array
    from slurmddp.script.snapshot import Code

BASE: Final = "base.sbatch.j2"
MANUAL: Final = "manual.j2"
CALLABLES: Final = "submitit.sbatch.j2"
_PACKAGE: Final = Path(__file__).parents[1]
_PACKAGED = _PACKAGE / "templates"
TEMPLATES: Final = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "templates"
"""Inside the package when installed; beside it in a checkout."""
_PROGRAM_OF_TASK: Final = '"${slurmddp_program[@]}"'
_MODULES = """\
# A shell function that zsh, for one, does not hand down; MODULESHOME is Lmod's and Environment Modules' own.
# shellcheck disable=SC1091
[ "$(type -t module)" ] || source "${MODULESHOME:-/usr/share/modules}/init/bash" || true"""


def render(
    spec: JobSpec,
    *,
    reset_number: int = 1,
    code: "Code | None" = None,
    array: "Array | None" = None,
    single_attempt: bool = False,
) -> str:
    """Return the script for a job, or what to type by hand: the same text for the same job, always valid UTF-8.

    `reset_number` tells this start over, if the job is one, from the run's earlier ones; `code` is what a job with a
    snapshot is to run, `array` what each task of one runs in place of the job's own program. With `single_attempt`
    the script is for an allocation that somebody else has made: it starts the ranks once, and asks Slurm for nothing
    else. Raises UsageError for a template or a set-up file that cannot be used.
    """
    environment, context = _environment(), _context(spec, reset_number, code, array, single_attempt=single_attempt)
    try:
        if spec.launcher == "manual":
            return environment.get_template(MANUAL).render(context | _by_hand(spec))
        template = environment.from_string(_own_template(spec.template)) if spec.template else None
        script = (template or environment.get_template(BASE)).render(context)
    except jinja2.TemplateError as error:
        raise UsageError(_template_message(spec.template, error)) from error
    return _checked(script, spec.template)


class Callables(msgspec.Struct, frozen=True, kw_only=True):
    """What the script of pickled callables has beyond that of a job (slurmddp.executor)."""

    folder: str
    """Where submitit's files lie; `%j`, `%A` and `%a` in it are the job's."""
    array: str = ""
    """As sbatch has it, `0-99%10`; empty for a single job."""
    python: str
    """What starts Python, as shell code."""
    errors_apart: bool = True
    """Whether a rank has a file for what it writes to stderr."""
    srun: tuple[str, ...] = ()
    """Further words for srun."""
    teardown: tuple[str, ...] = ()
    """Shell lines after each start of the ranks."""


def render_callables(spec: JobSpec, callables: Callables) -> str:
    """Return the script of a job, or an array of jobs, whose ranks call what was pickled for them.

    Raises UsageError for a value that no script can carry.
    """
    context = _context(spec, 1, None, None) | {
        "run_dir_word": _path_word(callables.folder),
        "supervisor_python": quoting.shell(_host_python(callables.python)),
        "supervisor_words": tuple(words(supervisor_options(spec, 1, single_attempt=False, record=False))),
        "indices": callables.array,
        "callables": callables,
        "python_code": quoting.lines(callables.python),
        "teardown_lines": [quoting.lines(line) for line in callables.teardown],
    }
    return _environment().get_template(CALLABLES).render(context)


def _host_python(code: str) -> str:
    """Return the Python of the supervisor: what starts the ranks' may lead into a container, where no Slurm is."""
    given = shlex.split(code)
    return given[0] if len(given) == 1 else sys.executable


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=_only_filtered,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        optimized=False,  # a template is used once, and to optimize it takes longer than it saves
    )
    environment.filters = {"header": quoting.header, "shell": quoting.shell, "lines": quoting.lines}
    return environment


def _only_filtered(value: Any) -> Any:
    if isinstance(value, quoting.Quoted | int | jinja2.Undefined):
        return value
    raise jinja2.TemplateRuntimeError(f"{shown(value)} is written without a filter; put | header or | shell behind it")


def _context(
    spec: JobSpec, reset_number: int, code: "Code | None", array: "Array | None", *, single_attempt: bool = False
) -> dict[str, Any]:
    python = _python(spec)
    options = supervisor_options(spec, reset_number, single_attempt=single_attempt)
    return {
        "job": spec,
        "version": __version__,
        "look": single_attempt,
        "run_dir_word": _path_word(f"{spec.runs_dir.rstrip('/')}/{spec.job_name}"),
        "run_variable": quoting.lines(f"${variables.SWEEP_DIR if array else variables.RUN_DIR}"),
        "supervisor_python": quoting.shell(supervisor_python(spec)),
        "supervisor_words": tuple(words(options)),
        "python": python,
        "virtual_environment": None if spec.container or spec.venv else environment_of(python),
        "program": quoting.Quoted(_PROGRAM_OF_TASK) if array else _words(spec),
        "indices": array.indices if array else "",
        "tasks": [{"folder": task.folder, "program": _words(task.job)} for task in array.tasks] if array else [],
        "setup_lines": _setup_lines(spec),
        "variables": [item.partition("=") for item in spec.variables],
        "code": code,
        "teardown_lines": (),
    } | (_contained(spec) if spec.container else {})


def supervisor_options(spec: JobSpec, reset_number: int, *, single_attempt: bool, record: bool = True) -> Options:
    """Return how the supervisor is to treat a job."""
    return Options(
        max_restarts=spec.max_restarts,
        max_requeues=spec.max_requeues,
        signal_lead=spec.lead_s,
        signal_margin=spec.margin_s,
        port_range=spec.ports,
        rendezvous_file=spec.init == "file",
        reset=reset_number if spec.reset else None,
        require_env=tuple(item for item in spec.variables if "=" not in item),
        record=record,
        single_attempt=single_attempt,
    )


def supervisor_python(spec: JobSpec) -> str:
    """Return the Python of the supervisor, outside of any container: the ranks', or else this one."""
    return spec.supervisor_python or (sys.executable if spec.container else _python(spec))


def _path_word(path: str) -> quoting.Quoted:
    """Return a path as a shell word; a relative one begins in the job's working directory."""
    word = quoting.shell(path)
    return word if path.startswith("/") else quoting.lines(f"$PWD/{word}")


def _words(spec: JobSpec) -> tuple[str, ...]:
    return spec.program_of_torchrun if spec.launcher == "torchrun" else spec.program


def _python(spec: JobSpec) -> str:
    if spec.container:
        return spec.python or "python3"
    return spec.python or ("python" if spec.conda or spec.venv else sys.executable)


def _contained(spec: JobSpec) -> dict[str, Any]:
    """Return what the container sees of this machine: our own package, and what the user has named.

    Raises UsageError for folders that no mount can name.
    """
    container.check_mountable(str(Path.cwd()), "the working directory")
    container.check_mountable(str(RunDir.named(spec.runs_dir, spec.job_name).path), "the run's folder")
    container.check_mountable(str(_PACKAGE), "slurmddp itself")
    return {
        "image": container.image_word(spec.container or ""),
        "mounts": [f"{_PACKAGE}:{container.PACKAGE}/slurmddp:ro", *map(container.spelled, spec.container_mount)],
        "package_path": container.PACKAGE,
    }


def _by_hand(spec: JobSpec) -> dict[str, Any]:
    hosts = expand(spec.nodelist) if spec.nodelist else _placeholders(spec.nodes)
    if len(hosts) != spec.nodes:
        raise UsageError(f"--nodelist names {len(hosts)} nodes and --nodes {spec.nodes}; give as many of the one")
    return {
        "hosts": hosts,
        "hosts_text": " ".join(hosts),
        "named": spec.nodelist is not None or spec.nodes == 1,
        "directory": str(Path.cwd()),
        "run_path": str(RunDir.named(spec.runs_dir, spec.job_name).path),
    }


def _placeholders(nodes: int) -> tuple[str, ...]:
    return ("localhost",) if nodes == 1 else tuple(f"NODE{number}" for number in range(nodes))


def _setup_lines(spec: JobSpec) -> list[quoting.Quoted]:
    """Return the shell lines that make the ranks' environment, in order."""
    lines = [_MODULES] if spec.module else []
    lines += [f"module load {quoting.shell(module)}" for module in spec.module]
    if spec.conda:
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {quoting.shell(spec.conda)}"]
    if spec.venv:
        lines += [f"source {quoting.shell(spec.venv.rstrip('/') + '/bin/activate')}"]
    if spec.setup_file:
        lines += [_whole(_read(spec.setup_file, "--setup-file").rstrip("\n"), spec.setup_file)]
    return [quoting.lines(line) for line in [*lines, *spec.setup]]


def _whole(lines: str, path: str) -> str:
    if (len(lines) - len(lines.rstrip("\\"))) % 2:
        raise UsageError(f"--setup-file: {shown(path)} ends in a backslash and would swallow the next line; end it")
    return lines


def _own_template(path: str) -> str:
    return _read(path, "--template")


def _read(path: str, option: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{option}: {shown(path)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option}: {shown(path)} is not UTF-8 text") from error


def _template_message(path: str | None, error: jinja2.TemplateError) -> str:
    line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
    return f"template {shown(path or BASE)}{line}: {error.message or type(error).__name__}"


def _checked(script: str, path: str | None) -> str:
    """Refuse what sbatch would refuse with less to go by."""
    if not script.startswith("#!"):
        raise UsageError(f"template {shown(path or BASE)}: the script must begin with #!; extend {BASE}")
    return script
