"""docs/reference.md is what the program says of itself. After a change: python tests/test_docs.py writes it anew."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slurmddp.cli import group
from slurmddp.spec import JOB_FIELDS
from slurmddp.worker.options import WORKER_FIELDS

REPOSITORY = Path(__file__).parent.parent
REFERENCE = REPOSITORY / "docs" / "reference.md"
EVENTS = REPOSITORY / "slurmddp" / "runtime" / "events.py"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    found = [path] if path else []
    for name in command.list_commands(context):
        found += commands(command.get_command(context, name), (*path, name))
    return found


def help_of(path: tuple[str, ...]) -> str:
    words = [sys.executable, "-m", "slurmddp.cli", *path, "--help"]
    out = subprocess.run(words, capture_output=True, text=True, check=True, env={"COLUMNS": "80"}).stdout
    return f"## slurmddp {' '.join(path)}\n\n```\n{out}```\n"


def job_keys() -> str:
    rows = [
        f"| `{key}` | {field.expected} | `SLURMDDP_{field.name.upper()}` | {field.option.slurm_variable} |"
        for key, field in JOB_FIELDS.items()
    ]
    return (
        "## Job options in files and in the environment\n\n"
        "The long name of an option is its key in a job file (`name` is short for `job-name`); there, `command` is\n"
        "the list of COMMAND's words, table `[worker]` holds the bundled worker's options, and paths are relative to\n"
        "the file. Precedence: command line, then the environment (ours before sbatch's), then the job file, then\n"
        "the built-in value. A list has one item a line in a variable.\n\n"
        "| key | value | variable | variable of sbatch's |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def worker_keys() -> str:
    rows = [
        f"| `--{key}` | {field.option.help} | {field.expected} | `{field.default}` |"
        for key, field in WORKER_FIELDS.items()
    ]
    return (
        "## The bundled worker\n\nIts options come after `--`, as in `slurmddp submit -N 2 -- --task linear`, or "
        "stand in table `[worker]`.\n\n| option | meaning | value | default |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def events() -> str:
    text = "## events.jsonl\n\nOne JSON object a line, appended by rank 0. Every record begins with `time` (seconds\n"
    text += "since 1970), `event`, `job`, `attempt`, `rank` and `host`; a number that JSON cannot write is\n"
    text += "the text `nan`, `inf` or `-inf`.\n\n| event | when | its own fields |\n|---|---|---|\n"
    for node in ast.parse(EVENTS.read_text()).body:
        if isinstance(node, ast.ClassDef):
            fields = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
            own = ", ".join(f"`{name}`" for name in fields if name != "event")
            text += f"| `{node.name.lower()}` | {ast.get_docstring(node)} | {own} |\n"
    return text


STATUSES = """## Exit status of a rank and of the job

| status | meaning |
|---|---|
| 0 | done |
| 75 | told to stop, the state is durable |
| 76 | failed in a way that another attempt can cure: a lost peer, a taken port, a timeout |
| 77 | failed in a way that another attempt would repeat: an exception in the program, a wrong configuration |
| 78 | another attempt owns the run |

A rank that fails leaves `RANK.end` beside its output, one line with the status, the rank, its host and the reason, and
for an exception `RANK.error.json` in torch's form. Rank 0 leaves `0.begin` when all ranks have met, and `0 done` in
`0.end` when all have ended well.
"""


def reference() -> str:
    helps = [help_of(path) for path in commands(group)]
    head = "# Reference\n\nWritten by `python tests/test_docs.py` from the program itself.\n"
    return "\n".join([head, *helps, job_keys(), worker_keys(), events(), STATUSES])


def test_the_reference_is_what_the_program_says():
    assert REFERENCE.read_text() == reference()


@pytest.mark.parametrize("path", commands(group), ids=" ".join)
def test_every_command_has_a_help_that_fits_80_columns(path):
    lines = help_of(path).splitlines()
    assert all(len(line) <= 80 for line in lines)


def test_the_readme_names_every_module():
    named = set(re.findall(r"\b(\w+)\.py\b", (REPOSITORY / "README.md").read_text()))
    modules = {path.stem for path in (REPOSITORY / "slurmddp").glob("*.py")} - {"__init__"}
    assert modules <= named


def test_the_readmes_examples_are_understood(tmp_path):
    """Each `slurmddp render` and `submit` line of the README renders."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "exp.toml").write_text(
        re.findall(r"```toml\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)[0]
    )
    examples = re.findall(
        r"^slurmddp (?:submit|render) (.*?)(?:  +#.*)?$", (REPOSITORY / "README.md").read_text(), re.MULTILINE
    )
    assert len(examples) >= 4
    for example in examples:
        words = [word for word in example.split() if word != "--follow"]
        done = subprocess.run(
            [sys.executable, "-m", "slurmddp.cli", "render", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (example, done.stderr)


if __name__ == "__main__":
    REFERENCE.write_text(reference())
