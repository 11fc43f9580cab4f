"""Renders the batch script of a JobSpec. Reads templates, the set-up file and the working directory.

A template can write a user's value only through a filter of `slurmddp.script.quoting`: `header` in `#SBATCH` lines,
`shell` elsewhere.
"""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slurmddp import variables
from slurmddp.attach import BOOTSTRAP, run_words
from slurmddp.config import container
from slurmddp.config.job_files import read_named_text
from slurmddp.config.job_spec import CHECKPOINT_WORD, JobSpec, for_torchrun
from slurmddp.config.python_env import environment_of
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import quoting
from slurmddp.script.setup_lines import python_of, setup_lines
from slurmddp.slurm.hostlist import expand
from slurmddp.supervisor_options import Options, build_arguments
from slurmddp.text import quote_value
from slurmddp.version import __version__

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array
    from slurmddp.script.snapshot import Code

BASE: Final = "base.sbatch.j2"
_PACKAGE: Final = Path(__file__).parents[1]
_PACKAGED = _PACKAGE / "templates"
TEMPLATES: Final = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "templates"
"""In the package when it is installed; next to the package in a checkout."""


def render(
    spec: JobSpec,
    *,
    reset_number: int = 1,
    code: "Code | None" = None,
    array: "Array | None" = None,
    single_attempt: bool = False,
) -> str:
    """Return the script of a job, or the commands to type with `--launcher manual`. The same job gives the same text.

    `reset_number` is the number of this `--reset` in the run, `code` the code of a job with a snapshot, `array` the
    programs of an array's tasks. With `single_attempt` the script is for an existing allocation: it starts the ranks
    once. Raises UsageError for a template or a set-up file that cannot be used.
    """
    options = _supervisor_options(spec, reset_number, single_attempt=single_attempt)
    context = _context(spec, options, code, array)
    templates = _templates()
    if spec.launcher == "manual":
        return templates.get_template("manual.j2").render(context | _manual_context(spec))
    if spec.template:
        return _render_own(templates, spec.template, context)
    return templates.get_template(BASE).render(context)


def render_preamble(spec: JobSpec, *, reset_number: int = 1, repeated_launch: bool = False) -> str:
    """Return the lines that a batch script of the user's own gets before its first command."""
    words = build_arguments(_supervisor_options(spec, reset_number, repeated_launch=repeated_launch))
    here = '"$SLURM_SUBMIT_DIR"' if spec.script and spec.script.get("chdir") else '"$PWD"'
    context = {
        "version": __version__,
        "is_array": spec.is_array,
        "run_dir_word": _path_word(f"{spec.runs_dir.rstrip('/')}/{spec.job_name}", here),
        "supervisor_python": quoting.shell(spec.supervisor_python or sys.executable),
        "supervisor_start": run_words(spec.supervisor_python or sys.executable, has_slurmddp=True),
        "supervisor_words": tuple(words),
        "is_repeated": repeated_launch,
    }
    return _templates().get_template("own_script.sh.j2").render(context)


def render_callables(spec: JobSpec, callables: Mapping[str, Any]) -> str:
    """Return the script of a job or an array whose ranks call pickled callables.

    `callables` is what `slurmddp.executor.parameters.build_callables` returns. Raises UsageError for a value that a
    script cannot have.
    """
    words = shlex.split(callables["python"])  # code of several words may start a container, which has no Slurm
    context = _context(spec, _supervisor_options(spec, record=False)) | {
        "run_dir_word": _path_word(callables["folder"]),
        "outputs_word": _path_word(callables["outputs"]),
        "supervisor_python": quoting.shell(words[0] if len(words) == 1 else sys.executable),
        "indices": callables["array"],
        "callables": callables,
        "python_code": quoting.lines(callables["python"]),
        "is_bootstrapped": False,
        "teardown_lines": [quoting.lines(line) for line in callables["teardown"]],
    }
    return _templates().get_template("submitit.sbatch.j2").render(context)


class _Templates(ImmutableSandboxedEnvironment):
    """What a block, a macro or `super()` returns was written through the filters already."""

    concat = staticmethod(lambda parts: quoting.Quoted("".join(parts)))


def _templates() -> _Templates:
    found = _Templates(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=_only_filtered,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        optimized=False,  # a template is used once, and to optimize it takes longer than it saves
    )
    found.filters = {"number_of": quoting.number_of, "header": quoting.header, "shell": quoting.shell}
    return found


def _only_filtered(value: Any) -> Any:
    if isinstance(value, quoting.Quoted | int | jinja2.Undefined):
        return value
    raise jinja2.TemplateRuntimeError(
        f"{quote_value(value)} is written without a filter; add | header or | shell to it"
    )


def _render_own(templates: _Templates, path: str, context: dict[str, Any]) -> str:
    """Render the template of `--template`. Raises UsageError for any error in it; its code can raise any."""
    try:
        source = read_named_text(path, "--template")
    except UsageError as error:
        raise UsageError(f"{error}; the template to extend is {TEMPLATES / BASE}") from error
    try:
        script = _compile_own(templates, path, source).render(context)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(_template_message(path, error)) from error
    if not script.startswith("#!"):  # sbatch would refuse it with an unclear message
        raise UsageError(f"template {quote_value(path)}: the script must begin with #!; extend {BASE}")
    return script


def _compile_own(templates: _Templates, path: str, source: str) -> jinja2.Template:
    tree, known = templates.parse(source), templates.get_template(BASE).blocks
    unknown = [node for node in tree.body if isinstance(node, nodes.Block) and node.name not in known]
    if unknown and any(tree.find_all(nodes.Extends)):
        raise UsageError(
            f"template {quote_value(path)}, line {unknown[0].lineno}: {BASE} has no block "
            f"{quote_value(unknown[0].name)}; its blocks are {', '.join(known)}, see {TEMPLATES / BASE}"
        )
    for block in tree.find_all(nodes.Block):  # one on a single line: what follows it in the base is another line
        last = block.body[-1] if block.body else None
        text = last.nodes[-1] if isinstance(last, nodes.Output) else None
        if isinstance(text, nodes.TemplateData) and not text.data.endswith("\n"):
            text.data += "\n"
    return jinja2.Template.from_code(templates, templates.compile(tree), templates.make_globals(None))


def _template_message(path: str, error: Exception) -> str:
    import traceback  # noqa: PLC0415 needed only for an error

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    lines += [error.lineno] if isinstance(error, jinja2.TemplateSyntaxError) else []
    line = f", line {lines[-1]}" if lines else ""
    said = error.message if isinstance(error, jinja2.TemplateError) else str(error)
    if isinstance(error, jinja2.UndefinedError):
        said = f"{said}; {TEMPLATES / BASE} shows the names"
    if isinstance(error, jinja2.TemplateNotFound):
        said = f"{quote_value(error.name)} is not there; only {BASE} can be extended or included"
    return f"template {quote_value(path)}{line}: {said or type(error).__name__}"


def _context(
    spec: JobSpec,
    options: Options,
    code: "Code | None" = None,
    array: "Array | None" = None,
) -> dict[str, Any]:
    python = python_of(spec)
    is_bootstrapped = not spec.container and python != sys.executable
    program = quoting.job_words(_words(spec, spec.program))
    context = {
        "job": spec,
        "version": __version__,
        "single_attempt": options.single_attempt,
        "run_dir_word": _path_word(f"{spec.runs_dir.rstrip('/')}/{spec.job_name}"),
        "run_variable": quoting.lines(f"${variables.SWEEP_DIR if array else variables.RUN_DIR}"),
        "supervisor_python": quoting.shell(spec.supervisor_python or sys.executable),
        "supervisor_start": run_words(spec.supervisor_python or sys.executable, has_slurmddp=True),
        "supervisor_words": tuple(build_arguments(options)),
        "python": python,
        "is_bootstrapped": is_bootstrapped,
        "run_words": quoting.lines(f'-u "${variables.BOOTSTRAP}"') if is_bootstrapped else _run_words(spec),
        "virtual_environment": None if spec.container or spec.venv else environment_of(python),
        "program": quoting.Quoted('"${slurmddp_program[@]}"') if array or spec.resume_args else program,
        "wrap_words": quoting.shell(_words(spec, spec.wrap_words)),
        "first_program": program,
        "resumed_program": _resumed_words(spec),
        "indices": array.indices if array else "",
        "tasks": [
            {
                "folder": task.folder,
                "program": quoting.job_words(_words(spec, task.job.program)),
                "resumed_program": _resumed_words(task.job),
            }
            for task in (array.tasks if array else ())
        ],
        "setup_lines": setup_lines(spec),
        "before_lines": [quoting.lines(line) for line in spec.before_ranks],
        "after_lines": [quoting.lines(line) for line in spec.after_ranks],
        "variables": [
            (key, equals, quoting.job_words([value]))
            for key, equals, value in (item.partition("=") for item in spec.variables)
        ],
        "code": code,
        "teardown_lines": (),
    }
    return context | _container_context(spec, spec.container) if spec.container else context


def _supervisor_options(spec: JobSpec, reset_number: int = 1, **more: bool) -> Options:
    return Options(
        max_restarts=spec.max_restarts,
        max_requeues=spec.max_requeues,
        signal_lead=spec.lead_s,
        signal_margin=spec.margin_s,
        port_range=spec.port_range,
        head_address=spec.head_address,
        rendezvous_file=spec.rendezvous == "file",
        checkpoints=spec.checkpoints or "",
        reset=reset_number if spec.reset else None,
        own_launch=spec.script is not None,
        notify=spec.notify is not None,
        hang_timeout=spec.hang_timeout or "",
        avoid=spec.avoid,
        spares=spec.spares,
        require_env=tuple(item for item in spec.variables if "=" not in item),
        **more,
    )


def _path_word(path: str, here: str = "$PWD") -> quoting.Quoted:
    """Return a path as a shell word; a relative path begins in the job's working directory."""
    word = quoting.shell(path)
    return word if path.startswith("/") else quoting.lines(f"{here}/{word}")


def _words(spec: JobSpec, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words of COMMAND, or before it, as the job's launcher takes them: torchrun expands `$`."""
    return for_torchrun(words) if spec.launcher in ("torchrun", "manual") else words


def _resumed_words(spec: JobSpec) -> quoting.Quoted | None:
    """Return COMMAND from the second start on; None where it does not change."""
    words = _words(spec, spec.resumed_program)
    escape = r"//\$/\$\$" if spec.launcher == "torchrun" else ""
    checkpoint = f'"${{{variables.CHECKPOINT}{escape}}}"'
    return quoting.job_words(words, {CHECKPOINT_WORD: quoting.Quoted(checkpoint)}) if words else None


def _container_context(spec: JobSpec, image: str) -> dict[str, Any]:
    """Return the image and the mounts: our own package, and the user's mounts.

    Raises UsageError for folders that cannot be mounted.
    """
    run = RunDir.named(spec.runs_dir, spec.job_name).path
    for what, path in (("the working directory", Path.cwd()), ("the run's folder", run), ("slurmddp itself", _PACKAGE)):
        if re.search("[:,]", str(path)):  # they separate the parts of a mount
            given = f"--container: {what} {quote_value(str(path))}"
            raise UsageError(f"{given} has : or , in its path, which no mount can have; use another folder")
    return {
        # `./` marks a file for pyxis, to which a bare name is in a registry
        "image": f"./{image}" if container.is_path(image) and "/" not in image else image,
        "mounts": [f"{_PACKAGE}:{container.PACKAGE}/slurmddp:ro", *map(container.complete_mount, spec.container_mount)],
        "package_path": container.PACKAGE,
    }


def _run_words(spec: JobSpec) -> tuple[str, ...]:
    """Return the words before a module of the ranks, where the supervisor's variable does not name them."""
    bootstrap = f"{container.PACKAGE}/slurmddp/{BOOTSTRAP.relative_to(_PACKAGE)}"
    return ("-u", bootstrap) if spec.container else run_words(python_of(spec))


def _manual_context(spec: JobSpec) -> dict[str, Any]:
    placeholders = ("localhost",) if spec.nodes == 1 else tuple(f"NODE{number}" for number in range(spec.nodes))
    hosts = expand(spec.nodelist) if spec.nodelist else placeholders
    if len(hosts) != spec.nodes:
        raise UsageError(f"--nodelist names {len(hosts)} nodes, but --nodes is {spec.nodes}; give the same number")
    return {
        "run_words": _run_words(spec),
        "program": _words(spec, spec.program),
        "hosts": hosts,
        "hosts_text": " ".join(hosts),
        "head": spec.head_address.replace("{host}", hosts[0]),
        "named": spec.nodelist is not None or spec.nodes == 1,
        "directory": str(Path.cwd()),
        "run_path": str(RunDir.named(spec.runs_dir, spec.job_name).path),
    }
