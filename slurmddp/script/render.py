"""Renders the batch script of a JobSpec. Reads templates, the set-up file and the working directory.

It writes nothing but the compiled templates.

A template can write a user's value only through a filter of `slurmddp.script.quoting`: `header` in `#SBATCH` lines,
`shell` elsewhere.
"""

import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.bccache import Bucket
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slurmddp import variables
from slurmddp.batch.arguments import Options, build_arguments
from slurmddp.config import container
from slurmddp.config.job_files import read_named_text
from slurmddp.config.job_spec import CHECKPOINT_WORD, NODE_TMPDIR, JobSpec, check_line_end
from slurmddp.config.python_env import environment_of
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import quoting
from slurmddp.slurm.hostlist import expand
from slurmddp.text import quote_value
from slurmddp.version import __version__

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array
    from slurmddp.script.environment import Environment
    from slurmddp.script.snapshot import Code

BASE: Final = "base.sbatch.j2"
MANUAL: Final = "manual.j2"
CALLABLES: Final = "submitit.sbatch.j2"
_PACKAGE: Final = Path(__file__).parents[1]
_PACKAGED = _PACKAGE / "templates"
TEMPLATES: Final = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "templates"
"""In the package when it is installed; next to the package in a checkout."""
_TASK_PROGRAM: Final = '"${slurmddp_program[@]}"'
_MODULES = """\
# A shell function that zsh, for one, does not hand down; MODULESHOME is Lmod's and Environment Modules' own.
# shellcheck disable=SC1091
[ "$(type -t module)" ] || source "${MODULESHOME:-/usr/share/modules}/init/bash" 2>/dev/null || true"""


def render(
    spec: JobSpec,
    *,
    reset_number: int = 1,
    code: "Code | None" = None,
    array: "Array | None" = None,
    environment: "Environment | None" = None,
    single_attempt: bool = False,
) -> str:
    """Return the script of a job, or the commands to type with `--launcher manual`. The same job gives the same text.

    `reset_number` is the number of this `--reset` in the run, `code` the code of a job with a snapshot, `array` the
    programs of an array's tasks, `environment` that of a job which stages it. With `single_attempt` the script is for
    an existing allocation: it starts the ranks once. Raises UsageError for a template or a set-up file that cannot be
    used.
    """
    templates = _environment()
    context = _context(spec, reset_number, code, array, environment, single_attempt=single_attempt)
    try:
        if spec.launcher == "manual":
            return templates.get_template(MANUAL).render(context | _manual_context(spec))
        script = _template(templates, spec.template).render(context)
    except jinja2.TemplateError as error:
        raise UsageError(_template_message(spec.template, error)) from error
    except Exception as error:
        if not spec.template or isinstance(error, UsageError):
            raise
        raise UsageError(
            _template_message(spec.template, error)
        ) from error  # a template's own code can raise any error
    return _check_shebang(script, spec.template)


class Callables(msgspec.Struct, frozen=True, kw_only=True):
    """Further values for the script of pickled callables (slurmddp.executor)."""

    folder: str
    """The folder of submitit's files; Slurm replaces `%j`, `%A` and `%a`."""
    array: str = ""
    """The value of `sbatch --array`, as `0-99%10`; empty for a single job."""
    python: str
    """The shell code that starts Python."""
    errors_apart: bool = True
    """Whether a rank has a separate file for stderr."""
    srun: tuple[str, ...] = ()
    """Further arguments of srun."""
    teardown: tuple[str, ...] = ()
    """Shell lines after each attempt."""


def render_callables(spec: JobSpec, callables: Callables) -> str:
    """Return the script of a job or an array whose ranks call pickled callables.

    Raises UsageError for a value that a script cannot have.
    """
    context = _context(spec, 1, None, None, None) | {
        "run_dir_word": _path_word(callables.folder),
        "supervisor_python": quoting.shell(_host_python(callables.python)),
        "supervisor_words": tuple(
            build_arguments(build_supervisor_options(spec, 1, single_attempt=False, record=False))
        ),
        "indices": callables.array,
        "callables": callables,
        "python_code": quoting.lines(callables.python),
        "teardown_lines": [quoting.lines(line) for line in callables.teardown],
    }
    return _environment().get_template(CALLABLES).render(context)


def _host_python(code: str) -> str:
    """Return the Python of the supervisor; code of several words may start a container, which has no Slurm."""
    given = shlex.split(code)
    return given[0] if len(given) == 1 else sys.executable


class _CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Keeps compiled templates as Python keeps compiled modules: in `__pycache__`, if that can be written."""

    def get_source_checksum(self, source: str) -> str:
        """Return a checksum that also changes with the versions and the settings of the environment in this module."""
        changed = Path(__file__).stat().st_mtime_ns
        return super().get_source_checksum(f"{source}\n{changed} {__version__} {jinja2.__version__}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read the compiled template; what cannot be read is compiled again."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # noqa: BLE001 from damaged bytes, pickle raises nearly any error
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the compiled template, unless Python writes no bytecode or the folder cannot be written.

        The file gets the mode of the template, as Python's compiled modules get that of their source: in a shared
        installation other users read it too, and jinja2 gives it the mode 0600.
        """
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)
                Path(self._get_cache_filename(bucket)).chmod((TEMPLATES / BASE).stat().st_mode & 0o666)


class _Environment(ImmutableSandboxedEnvironment):
    """What a block, a macro or `super()` returns was written through the filters already."""

    concat = staticmethod(lambda parts: quoting.Quoted("".join(parts)))


def _environment() -> _Environment:
    environment = _Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=_CompiledTemplates(str(TEMPLATES / "__pycache__"), "%s.cache"),
        undefined=jinja2.StrictUndefined,
        finalize=_only_filtered,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        optimized=False,  # a template is used once, and to optimize it takes longer than it saves
    )
    environment.filters = {
        "number_of": quoting.number_of,
        "header": quoting.header,
        "shell": quoting.shell,
        "lines": quoting.lines,
    }
    return environment


def _template(environment: _Environment, path: str | None) -> jinja2.Template:
    """Return the base template, or that of `--template`; raises UsageError for a block that the base does not have."""
    base = environment.get_template(BASE)
    if path is None:
        return base
    try:
        source = read_named_text(path, "--template")
    except UsageError as error:
        raise UsageError(f"{error}; the template to extend is {TEMPLATES / BASE}") from error
    tree = environment.parse(source)
    unknown = [node for node in tree.body if isinstance(node, nodes.Block) and node.name not in base.blocks]
    if unknown and any(tree.find_all(nodes.Extends)):
        raise UsageError(
            f"template {quote_value(path)}, line {unknown[0].lineno}: {BASE} has no block "
            f"{quote_value(unknown[0].name)}; its blocks are {', '.join(base.blocks)}, see {TEMPLATES / BASE}"
        )
    for block in tree.find_all(nodes.Block):
        _end_line(block)
    return jinja2.Template.from_code(environment, environment.compile(tree), environment.make_globals(None))


def _end_line(block: nodes.Block) -> None:
    """End the last line of a block that is written on one line, for what follows it in the base is another line."""
    last = block.body[-1] if block.body else None
    text = last.nodes[-1] if isinstance(last, nodes.Output) else None
    if isinstance(text, nodes.TemplateData) and not text.data.endswith("\n"):
        text.data += "\n"


def _only_filtered(value: Any) -> Any:
    if isinstance(value, quoting.Quoted | int | jinja2.Undefined):
        return value
    raise jinja2.TemplateRuntimeError(
        f"{quote_value(value)} is written without a filter; add | header or | shell to it"
    )


def _context(
    spec: JobSpec,
    reset_number: int,
    code: "Code | None",
    array: "Array | None",
    environment: "Environment | None",
    *,
    single_attempt: bool = False,
) -> dict[str, Any]:
    python = python_of(spec)
    options = build_supervisor_options(spec, reset_number, single_attempt=single_attempt)
    return {
        "job": spec,
        "version": __version__,
        "single_attempt": single_attempt,
        "run_dir_word": _path_word(f"{spec.runs_dir.rstrip('/')}/{spec.job_name}"),
        "run_variable": quoting.lines(f"${variables.SWEEP_DIR if array else variables.RUN_DIR}"),
        "supervisor_python": quoting.shell(supervisor_python(spec)),
        "supervisor_words": tuple(build_arguments(options)),
        "python": quoting.lines(f'"${variables.ENVIRONMENT}"/bin/python3') if environment else python,
        "virtual_environment": None if spec.container or spec.venv or environment else environment_of(python),
        "program": quoting.Quoted(_TASK_PROGRAM) if array or spec.resume_args else _words(spec),
        "first_program": None if array else _words(spec),
        "resumed_program": _resumed_words(spec),
        "indices": array.indices if array else "",
        "tasks": [
            {"folder": task.folder, "program": _words(task.job), "resumed_program": _resumed_words(task.job)}
            for task in array.tasks
        ]
        if array
        else [],
        "setup_lines": _setup_lines(spec),
        "variables": [item.partition("=") for item in spec.variables],
        "code": code,
        "teardown_lines": (),
        "environment": environment,
    } | (_container_context(spec) if spec.container else _staging_context(spec, environment))


def build_supervisor_options(spec: JobSpec, reset_number: int, *, single_attempt: bool, record: bool = True) -> Options:
    """Return the supervisor's options for a job."""
    return Options(
        max_restarts=spec.max_restarts,
        max_requeues=spec.max_requeues,
        signal_lead=spec.lead_s,
        signal_margin=spec.margin_s,
        port_range=spec.ports,
        rendezvous_file=spec.rendezvous == "file",
        checkpoints=spec.checkpoints or "",
        reset=reset_number if spec.reset else None,
        require_env=tuple(item for item in spec.variables if "=" not in item),
        record=record,
        single_attempt=single_attempt,
    )


def supervisor_python(spec: JobSpec) -> str:
    """Return the Python of the supervisor: that of the ranks, but with a container the Python that runs slurmddp."""
    return spec.supervisor_python or (sys.executable if spec.container else python_of(spec))


def _path_word(path: str) -> quoting.Quoted:
    """Return a path as a shell word; a relative path begins in the job's working directory."""
    word = quoting.shell(path)
    return word if path.startswith("/") else quoting.lines(f"$PWD/{word}")


def _words(spec: JobSpec) -> tuple[str, ...]:
    return spec.program_of_torchrun if spec.launcher == "torchrun" else spec.program


def _resumed_words(spec: JobSpec) -> quoting.Quoted | None:
    """Return COMMAND from the second start on; None where it does not change. torchrun expands `$`."""
    is_torchrun = spec.launcher == "torchrun"
    words = [word.replace("$", "$$") if is_torchrun else word for word in spec.resumed_program]
    escape = r"//\$/\$\$" if is_torchrun else ""
    checkpoint = f'"${{{variables.CHECKPOINT}{escape}}}"'
    return quoting.shell_with_variable(words, CHECKPOINT_WORD, quoting.Quoted(checkpoint)) if words else None


def python_of(spec: JobSpec) -> str:
    """Return the Python of the ranks as the script names it."""
    if spec.container:
        return spec.python or "python3"
    return spec.python or ("python" if spec.conda or spec.venv else sys.executable)


def _staging_context(spec: JobSpec, environment: "Environment | None") -> dict[str, Any]:
    """Return the archive of a job's environment, and the folder of the copies on a node."""
    if environment is None:
        return {}
    given = quoting.lines('"${TMPDIR:-/tmp}"') if spec.stage_env == NODE_TMPDIR else quoting.shell(spec.stage_env)
    archive = quoting.shell(f"{spec.runs_dir.rstrip('/')}/.environments/{environment.key}.tar")
    return {
        "archive_word": archive if spec.runs_dir.startswith("/") else quoting.lines(f'"$PWD"/{archive}'),
        "stage_word": quoting.lines(f'{given}/slurmddp-"$UID"'),
    }


def _container_context(spec: JobSpec) -> dict[str, Any]:
    """Return the image and the mounts: our own package, and the user's mounts.

    Raises UsageError for folders that cannot be mounted.
    """
    container.check_mountable(str(Path.cwd()), "the working directory")
    container.check_mountable(str(RunDir.named(spec.runs_dir, spec.job_name).path), "the run's folder")
    container.check_mountable(str(_PACKAGE), "slurmddp itself")
    return {
        "image": container.image_word(spec.container or ""),
        "mounts": [f"{_PACKAGE}:{container.PACKAGE}/slurmddp:ro", *map(container.complete_mount, spec.container_mount)],
        "package_path": container.PACKAGE,
    }


def _manual_context(spec: JobSpec) -> dict[str, Any]:
    hosts = expand(spec.nodelist) if spec.nodelist else _placeholders(spec.nodes)
    if len(hosts) != spec.nodes:
        raise UsageError(f"--nodelist names {len(hosts)} nodes, but --nodes is {spec.nodes}; give the same number")
    return {
        "hosts": hosts,
        "hosts_text": " ".join(hosts),
        "named": spec.nodelist is not None or spec.nodes == 1,
        "directory": str(Path.cwd()),
        "run_path": str(RunDir.named(spec.runs_dir, spec.job_name).path),
    }


def _placeholders(nodes: int) -> tuple[str, ...]:
    return ("localhost",) if nodes == 1 else tuple(f"NODE{number}" for number in range(nodes))


def activation_lines(spec: JobSpec) -> list[str]:
    """Return the shell lines that activate the environment of --conda or --venv."""
    lines = []
    if spec.conda:
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {quoting.shell(spec.conda)}"]
    if spec.venv:
        lines += [f"source {quoting.shell(spec.venv.rstrip('/') + '/bin/activate')}"]
    return lines


def _setup_lines(spec: JobSpec) -> list[quoting.Quoted]:
    """Return the shell lines that set up the ranks' environment, in their order."""
    lines = [_MODULES] if spec.module else []
    lines += [f"module load {quoting.shell(module)}" for module in spec.module]
    lines += activation_lines(spec)
    if spec.setup_file:
        lines += [read_named_text(spec.setup_file, "--setup-file").rstrip("\n")]
        if "\r" in lines[-1]:
            name, typed = quote_value(spec.setup_file), shlex.quote(spec.setup_file)
            raise UsageError(f"--setup-file: {name} has carriage returns, as Windows writes; type: dos2unix {typed}")
        check_line_end(lines[-1], f"--setup-file: {quote_value(spec.setup_file)}")
    return [quoting.lines(line) for line in [*lines, *spec.setup]]


def _template_message(path: str | None, error: Exception) -> str:
    import traceback  # noqa: PLC0415 needed only for an error

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    lines += [error.lineno] if isinstance(error, jinja2.TemplateSyntaxError) else []
    line = f", line {lines[-1]}" if lines else ""
    said = error.message if isinstance(error, jinja2.TemplateError) else str(error)
    if isinstance(error, jinja2.UndefinedError):
        said = f"{said}; {TEMPLATES / BASE} shows the names"
    if isinstance(error, jinja2.TemplateNotFound):
        said = f"{quote_value(error.name)} is not there; only {BASE} can be extended or included"
    return f"template {quote_value(path or BASE)}{line}: {said or type(error).__name__}"


def _check_shebang(script: str, path: str | None) -> str:
    """Raise UsageError for a script that sbatch would refuse with an unclear message."""
    if not script.startswith("#!"):
        raise UsageError(f"template {quote_value(path or BASE)}: the script must begin with #!; extend {BASE}")
    return script
