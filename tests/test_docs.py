"""docs/reference.md is what the program says of itself, and a table of docs/exit-codes.md what it calls each end.

After a change: python tests/test_docs.py writes them anew.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

from slurmddp.cli import group
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.outcome import MEANINGS
from slurmddp.report.html import CLASSES

REPOSITORY = Path(__file__).parent.parent
REFERENCE = REPOSITORY / "docs" / "reference.md"
EXIT_CODES = REPOSITORY / "docs" / "exit-codes.md"
README = REPOSITORY / "README.md"
EVENTS = [REPOSITORY / "slurmddp" / "runs" / name for name in ("training_events.py", "events.py")]
TRAINING = REPOSITORY / "docs" / "training.md"
PAGES = [README, REPOSITORY / "jobs" / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


FOREIGN = {
    "--array",
    "--container-env",
    "--container-image",
    "--cpu",
    "--device",
    "--dryrun",
    "--init_from",
    "--local-rank",
    "--max_retries",
    "--mixed_precision",
    "--mpi",
    "--multirun",
    "--nnodes",
    "--no-accel",
    "--nproc-per-node",
    "--ntasks",
    "--nv",
    "--output",
    "--protocol",
    "--rdzv_port",
    "--resume",
    "--script",
    "--signal",
    "--test-only",
    "--transformer-impl",
    "--walltime",
}
"""Options of other programs that the pages speak of."""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path, (*path, "results")] if path == ("sweep",) else [path]
    context = click.Context(command)
    found = [path] if path else []
    for name in command.list_commands(context):
        if command.get_command(context, name).hidden:
            continue
        found += commands(command.get_command(context, name), (*path, name))
    return found


def help_of(path: tuple[str, ...], option: str = "--help") -> str:
    said = CliRunner().invoke(group, [*path, option], prog_name="slurmddp", terminal_width=78)
    assert said.exit_code == 0, said.output
    return said.output


def command_help(path: tuple[str, ...]) -> str:
    return f"## slurmddp {' '.join(path)}\n\n```\n{help_of(path)}```\n"


def job_options() -> str:
    """Return the options of the job once: those of `submit`, which has all of them."""
    (text,) = re.findall(r"(?s)\n(Resources:\n.*)\nOptions of this command:", help_of(("submit",), "--help-all"))
    return f"## Options of the job\n\nOf `render`, `submit`, `run`, `sweep`, `scale` and `doctor`.\n\n```\n{text}```\n"


def job_keys() -> str:
    rows = [
        f"| `{key}` | {field.expected} | `SLURMDDP_{field.name.upper()}` | {field.option.variable} |"
        for key, field in JOB_FIELDS.items()
    ]
    return (
        "## Job options in files and in the environment\n\n"
        "The long name of an option is its key in a job file (`name` is short for `job-name`); there, `command` is\n"
        "the list of COMMAND's words, table `[worker]` holds the bundled worker's options, and paths are relative to\n"
        "the file. The files of a project and of a user have the same keys but for `command`:\n"
        "[Configuration](configuration.md). Precedence: command line, environment (ours before sbatch's), job file,\n"
        "project, user, what the cluster says, the built-in value. A list has one item a line in a variable.\n\n"
        "| key | value | variable | variable of sbatch's |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def worker_keys() -> str:
    rows = [
        f"| `--{key}` | {field.option.help} | {field.expected} | `{field.default}` |"
        for key, field in WORKER_FIELDS.items()
    ]
    return (
        "## The bundled worker\n\nIts options are given as the job's, as in `slurmddp submit -N 2 --task linear`, or "
        "after `--`, or stand in table `[worker]`.\n\n| option | meaning | value | default |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def events() -> str:
    text = (
        "## events.jsonl\n\n"
        "One JSON object a line, appended by rank 0, the supervisor or `slurmddp cancel`. Every record begins with\n"
        "`time` (seconds since 1970), `event`, `job`, `attempt`, `rank` (null for the last two) and `host`;\n"
    )
    text += "a number that JSON cannot write is the text `nan`, `inf` or `-inf`.\n\n"
    text += "| event | when | its own fields |\n|---|---|---|\n"
    nodes = [node for file in EVENTS for node in ast.parse(file.read_text()).body]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return text + "".join(row(node) for node in classes if is_event(node))


def is_event(node: ast.ClassDef) -> bool:
    return any(isinstance(item, ast.AnnAssign) and item.target.id == "event" and item.value for item in node.body)


def row(node: ast.ClassDef) -> str:
    fields, name = [], ""
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and item.target.id == "event":
            name = ast.literal_eval(item.value)
        elif isinstance(item, ast.AnnAssign):
            said = after.value.value if isinstance(after, ast.Expr) else ""
            fields.append(f"`{item.target.id}`" + f" ({said.rstrip('.')})" * bool(said))
    return f"| `{name}` | {ast.get_docstring(node)} | {', '.join(fields)} |\n"


STATUSES = """## Exit status of a rank and of the job

| status | meaning | the supervisor |
|---|---|---|
| 0 | done | ends |
| 75 | stopped by a signal, the state is durable | requeues the job; ends with it where that is not allowed |
| 76 | failed in a way that another attempt can cure: a lost peer, a taken port, a timeout | starts the ranks again |
| 77 | failed in a way that another attempt would repeat: an exception in the program, a wrong configuration | ends |
| 78 | another attempt owns the run | ends |
| other | killed | as 76 |

A rank that fails leaves `RANK.end` beside its output, one line with the status, the rank, its host and the reason, and
for an exception `RANK.error.json` in torch's form. Rank 0 leaves `0.begin` when all ranks have met, and `0 done` in
`0.end` when all have ended well.
"""


def reference() -> str:
    helps = [command_help(path) for path in commands(group)]
    head = "# Reference\n\nWritten by `python tests/test_docs.py` from the program itself.\n"
    return "\n".join([head, *helps, job_options(), job_keys(), worker_keys(), events(), STATUSES])


def test_the_reference_is_what_the_program_says():
    assert REFERENCE.read_text() == reference()


def outcomes() -> str:
    """Return the table of the kinds of outcomes: a row for each."""
    head = ("outcome", "STATE", "in the report, colour", "`submit --wait`", "failure", "what brings it back")
    rows = []
    for kind, means in MEANINGS.items():
        label = f"{means.label}, {means.colour if means.colour in CLASSES else 'grey'}"
        status = str(means.wait_status) if kind.final and kind.phase != "queued" else ""
        rows.append((f"`{kind}`", means.word, label, status, "yes" if means.failed else "no", means.back))
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], f"|{'---|' * len(head)}\n", *lines[1:]])


def exit_codes() -> str:
    """Return docs/exit-codes.md with the table as it is now."""
    return re.sub(r"(?s)\| outcome \|.*?\n(?=\n)", lambda _: outcomes(), EXIT_CODES.read_text(), count=1)


def test_the_page_of_exit_codes_has_each_kind_of_outcome():
    assert "| outcome |" in EXIT_CODES.read_text()
    assert EXIT_CODES.read_text() == exit_codes()


@pytest.mark.parametrize("path", commands(group), ids=" ".join)
def test_every_command_has_a_help_that_fits_80_columns(path):
    assert all(len(line) <= 80 for line in help_of(path).splitlines())


def test_the_whole_help_has_every_option_of_the_job():
    shown = help_of(("submit",), "--help-all")
    assert all(re.search(rf"^  (-\w, )?--{key}\b", shown, re.MULTILINE) and JOB_FIELDS[key].group for key in JOB_FIELDS)
    assert all(
        len(line) <= 80 for scope in ("all", "worker") for line in help_of(("run",), f"--help-{scope}").splitlines()
    )


def test_the_examples_of_the_first_pages_are_understood(tmp_path):
    """Each `slurmddp render` and `submit` line of the README and of the tutorials renders."""
    pages = [REPOSITORY / name for name in ("README.md", "docs/first-job.md", "docs/first-resumable-training.md")]
    text = "\n".join(page.read_text() for page in pages)
    for name in ("train.py", "bad.py", "resumable.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "exp.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    examples = re.findall(r"(?:^|\$ |`|\()slurmddp (?:submit|render) (.*?)(?=  +#|`|\)?$)", text, re.MULTILINE)
    assert len(examples) >= 7
    for example in examples:
        words = [word for word in example.split() if word not in {"--follow", "--wait"}]
        done = render(words, tmp_path)
        assert done.returncode == 0, (example, done.stderr)


def render(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slurmddp", "render", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_readmes_script_is_what_render_prints(tmp_path):
    """But for the place of the Python, and its virtual environment. `python tests/test_docs.py` writes it anew."""
    assert without_paths(README.read_text()) == without_paths(readme(tmp_path))


def readme(folder: Path) -> str:
    """Return the README with the script that its `slurmddp render` line prints now, with a neutral path."""
    text = README.read_text()
    (example,) = re.findall(r"`slurmddp render (.*?)` prints", text)
    (folder / "train.py").write_text("")
    script = re.sub(r"\S+(?=/bin/python3? -P)", "/home/me/venv", render(example.split(), folder).stdout)
    environment = 'export VIRTUAL_ENV=/home/me/venv PATH=/home/me/venv/bin:"$PATH"'
    script = re.sub(r"^export VIRTUAL_ENV=.*", environment, script, flags=re.MULTILINE)
    return re.sub(r"(?s)(?<=```bash\n).*?(?=```)", lambda _: script, text, count=1)


def without_paths(text: str) -> str:
    return re.sub(r"(?m)^export VIRTUAL_ENV=.*\n|\S+/(?=python3? -P)|(?<=python)3(?= -P)", "", text)


def test_the_readme_is_short():
    assert README.stat().st_size <= 6000


def test_the_pages_name_only_options_that_there_are():
    known = set(re.findall(r"--[a-z][a-z-]*", REFERENCE.read_text()))
    for page in PAGES:
        text = re.sub(r"```bash\n.*?```", "", page.read_text(), flags=re.DOTALL)  # batch scripts
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z_-]*", text)) - FOREIGN <= known, page


def test_every_page_is_in_the_nav_of_the_site():
    named = re.findall(r": ([a-z-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in (REPOSITORY / "docs").glob("*.md"))


def test_the_pages_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), (page, link)


@pytest.fixture
def training(tmp_path):
    """Return a function that runs the script of docs/training.md with two ranks, and returns what it printed."""
    (script,) = re.findall(r"```python\n(.*?)```", TRAINING.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    words = [sys.executable, "-m", "slurmddp", "run", "--ntasks-per-node", "2", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def run() -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_the_training_of_the_docs_trains_and_a_second_run_resumes_at_its_end(training, tmp_path):
    run = tmp_path / "jobs" / "train"
    assert "resumed" not in training()
    first = torch.load(run / "model.pt", weights_only=True)
    (run / "model.pt").unlink()
    said = training()
    (checkpoint,) = run.glob("checkpoints/step-*")
    assert f"resumed at step {int(checkpoint.name[5:])} from {checkpoint.name}" in said
    for path in (run / "model.pt", checkpoint / "model.pt"):
        again = torch.load(path, weights_only=True)
        assert first.keys() == again.keys() == torch.nn.Linear(16, 1).state_dict().keys()
        assert all(torch.equal(first[name], again[name]) for name in first)


def patched(text: str, diff: str) -> str:
    lines, result, position = text.splitlines(), [], 0
    for line in diff.splitlines()[2:]:
        if line.startswith("@@"):
            start = int(re.findall("[0-9]+", line)[0]) - 1
            result += lines[position:start]
            position = start
        elif line.startswith("+"):
            result.append(line[1:])
        else:
            assert lines[position] == line[1:]
            result += [lines[position]] * line.startswith(" ")
            position += 1
    return "\n".join([*result, *lines[position:], ""])


def test_the_tutorials_diff_makes_its_first_script_resumable(tmp_path):
    """The diff of the second tutorial fits the script of the first; what comes out trains, and resumes at its end."""
    docs = REPOSITORY / "docs"
    (script,) = re.findall(r"```python\n(.*?)```", (docs / "first-job.md").read_text(), re.DOTALL)
    (diff,) = re.findall(r"```diff\n(.*?)```", (docs / "first-resumable-training.md").read_text(), re.DOTALL)
    (tmp_path / "resumable.py").write_text(patched(script, diff))
    words = [sys.executable, "-m", "slurmddp", "run", "--ntasks-per-node", "2", "resumable.py", "--epochs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    for said in ("step 0: loss", "resumed at step 20 from"):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in done.stdout + done.stderr


if __name__ == "__main__":
    REFERENCE.write_text(reference())
    EXIT_CODES.write_text(exit_codes())
    with tempfile.TemporaryDirectory() as folder:
        README.write_text(readme(Path(folder)))
