"""The text in README.md and docs/ that repeats the code: each function returns what stands in a page after its call.

After a change of the code: cog -r -I docs README.md docs/*.md
"""

import ast
import html
import inspect
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import typing
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import click
from click.testing import CliRunner

from slurmddp import exit_codes, variables
from slurmddp.cli import group
from slurmddp.cli.job_command import JobCommand
from slurmddp.cli.sweep import show_results
from slurmddp.config.foreign_options import foreign
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.diagnose.rule_types import Rule
from slurmddp.diagnose.rules import load_rules
from slurmddp.outcome import MEANINGS
from slurmddp.report.html import CLASSES
from slurmddp.runs.layout import RunDir, _File
from slurmddp.runtime.launch.rank import export, read_rank

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "slurmddp"
EVENTS = (PACKAGE / "runs" / "training_events.py", PACKAGE / "runs" / "events.py")
WIDTH = 120
LONGEST_EXAMPLE = 90
AGAIN = {True: "yes", False: "no", "unknown": ""}
BARE = "Slurm's states, and how a rank ended"
ENDS = {"status": "a rank ended with a status", "silent": "a rank left no record"}


# --- Commands and options


def list_commands(command: click.Command = group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that is not hidden: `("sandbox", "up")`."""
    if path:
        yield path
    if path == ("sweep",):
        yield (*path, "results")
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if not (found := command.get_command(context, name)).hidden:
                yield from list_commands(found, (*path, name))


def help_of(path: Sequence[str], option: str = "--help") -> str:
    """Return what a command says of itself."""
    said = CliRunner().invoke(group, [*path, option], prog_name="slurmddp", terminal_width=78)
    if said.exit_code:
        raise RuntimeError(said.output)
    return said.output


def context_of(path: Sequence[str]) -> click.Context:
    """Return the context of a command with its path: the words that are typed for it."""
    context = click.Context(group, info_name="slurmddp", **group.context_settings)
    for name in path:
        is_results = path[:1] == ("sweep",) and name == "results"
        command = show_results if is_results else context.command.get_command(context, name)
        context = click.Context(command, parent=context, info_name=name)
    return context


def commands() -> str:
    """Return every command: a heading, the line, what it does, and its options, each with an anchor."""
    return _block(*map(_command, list_commands()))


def _command(path: Sequence[str]) -> str:
    context = context_of(path)
    command, name = context.command, " ".join(path)
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [f"## slurmddp {name}", f"`{usage}`", _as_markdown(inspect.cleandoc(command.help))]
    options = [item for item in command.get_params(context) if not any("help" in word for word in item.opts)]
    of_job = {field.name: key for key, field in JOB_FIELDS.items()}
    if isinstance(command, JobCommand):
        keys = [of_job[item.name] for item in options if item.name in of_job]
        few = "" if len(keys) > len(of_job) / 2 else f" ({', '.join(f'`--{key}`' for key in keys)})"
        parts.append(
            f"For example: `slurmddp {name} {command.epilog}`. It has the [options of the job](#options-of-the-job)"
            f"{few}, those of the [bundled worker](#the-bundled-worker), and:"
        )
        options = [item for item in options if item.name not in of_job and not item.name.startswith("worker_")]
    rows = [_option(item, context, "-".join(path)) for item in options if isinstance(item, click.Option)]
    return "\n\n".join([*parts, *([_table("option | meaning", rows).strip()] if rows else [])])


def job_options() -> str:
    """Return the options of the job once, in groups: those of `submit`, which has all of them."""
    context = context_of(("submit",))
    by_name = {item.name: item for item in context.command.get_params(context)}
    groups: dict[str, list[tuple[str, str]]] = {}
    for field in JOB_FIELDS.values():
        groups.setdefault(field.group, []).append(_option(by_name[field.name], context, "job"))
    return _block(*(f"### {title}\n{_table('option | meaning', rows).rstrip()}" for title, rows in groups.items()))


def _option(item: click.Option, context: click.Context, place: str) -> tuple[str, str]:
    """Return an option with its spellings, which is a link to itself, and its help."""
    spelled, text = item.get_help_record(context)
    anchor = f"{place}-{max(item.opts, key=len).lstrip('-')}"
    return f'<a id="{anchor}" href="#{anchor}"><code>{html.escape(spelled)}</code></a>', _as_markdown(text)


def _as_markdown(text: str) -> str:
    """Return a help text with its options as code, and without what Markdown or HTML would take for a mark.

    Lines that click leaves as they are, behind a backspace, are a block of code.
    """
    if block := re.search(r"(?s)\x08\n(.*?)\n\n", text):
        return f"{_as_markdown(text[: block.start()])}{_code_block(block[1])}\n\n{_as_markdown(text[block.end() :])}"
    parts = re.split(r"(`[^`]*`)", re.sub(r"  +", " ", text))
    return "".join(part if part.startswith("`") else _mark_options(part) for part in parts)


def _mark_options(text: str) -> str:
    return re.sub(r"(?<![^\s(])--[a-z][a-z-]*(?: [0-9]+)?", r"`\g<0>`", re.sub(r"([<*])", r"\\\1", text))


def job_keys() -> str:
    """Return the keys of a job file, and the variables that set the same."""
    return _table(
        "key | value | variable | variable of sbatch's",
        (
            (f"`{key}`", field.expected, f"`SLURMDDP_{field.name.upper()}`", field.option.variable)
            for key, field in JOB_FIELDS.items()
        ),
    )


def worker_keys() -> str:
    """Return the options of the bundled worker."""
    return _table(
        "option | meaning | value | default",
        (
            (f"`--{key}`", field.option.help, field.expected, f"`{field.default}`")
            for key, field in WORKER_FIELDS.items()
        ),
    )


def refused_options() -> str:
    """Return the options of sbatch that `--sbatch` refuses, and what to type instead."""
    known = {name: entry for name, entry in foreign().items() if entry.of_sbatch and len(name) > 1}
    return _table("option of sbatch | instead", ((f"`{name}`", entry.advice) for name, entry in known.items()))


def script() -> str:
    """Return the script that the README's `slurmddp render` prints, in `/home/me/venv` and where there is no Slurm."""
    (words,) = re.findall(r"`slurmddp render (.*?)` prints", (REPOSITORY / "README.md").read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "venv").mkdir()
        (folder / "venv" / "pyvenv.cfg").touch()
        (folder / "train.py").touch()
        there = f"import sys; sys.executable = '{folder}/venv/bin/python'; from slurmddp.cli import main; main()"
        command = [sys.executable, "-c", there, "render", *words.split()]
        environment = {"PATH": os.devnull, "HOME": name, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return _block(_code_block(done.stdout.replace(str(folder), "/home/me"), "bash"))


# --- What the source says of its names


def events() -> str:
    """Return the events of `events.jsonl`, from their classes."""
    bodies = (ast.parse(file.read_text()).body for file in EVENTS)
    classes = [node for body in bodies for node in body if isinstance(node, ast.ClassDef)]
    return _table("event | when | its own fields", filter(None, map(_event, classes)))


def _event(node: ast.ClassDef) -> tuple[str, ...] | None:
    names = (item for item in node.body if isinstance(item, ast.AnnAssign) and item.value)
    value = next((item.value for item in names if ast.unparse(item.target) == "event"), None)
    if value is None:
        return None
    said = _docstrings([item for item in node.body if not isinstance(item, ast.FunctionDef)])
    fields = [f"`{name}`" + f" ({text})" * bool(text) for name, text in said.items() if name != "event"]
    return f"`{ast.literal_eval(value)}`", ast.get_docstring(node) or "", ", ".join(fields)


def statuses() -> str:
    """Return the exit statuses of a rank, from `slurmddp.exit_codes`."""
    said = _docstrings(ast.parse(inspect.getsource(exit_codes)).body)
    return _table("status | meaning", ((getattr(exit_codes, name), _as_cell(text)) for name, text in said.items()))


def outcomes() -> str:
    """Return the kinds of outcomes, and what each means to the views."""
    rows = []
    for kind, means in MEANINGS.items():
        label = f"{means.label}, {means.colour if means.colour in CLASSES else 'grey'}"
        status = means.wait_status if kind.final and means.phase != "queued" else ""
        rows.append((f"`{kind}`", means.word, label, status, "yes" if means.failed else "no", means.back))
    return _table("outcome | STATE | in the report, colour | `submit --wait` | failure | what brings it back", rows)


def torch_variables() -> str:
    """Return the variables that a rank gets as torchrun would set them, by those of a process that is alone."""
    environment: dict[str, str] = {}
    export(read_rank(environment), environment)
    return _names(environment)


def job_variables(*names: str) -> str:
    """Return variables that a job sets for its ranks, by their names in `slurmddp.variables`."""
    said = _docstrings(ast.parse(inspect.getsource(variables)).body)
    return _table("variable | value", ((f"`{getattr(variables, name)}`", _as_cell(said[name])) for name in names))


def run_files() -> str:
    """Return every file of a run, in the order of `slurmddp.runs.layout`."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(RunDir)).body if isinstance(node, ast.ClassDef))
    said = _docstrings(body)
    return _table("file | content", ((f"`{path}`", _as_cell(said[name])) for name, path in _list_files()))


def _list_files() -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each file, with its ids in capitals; torch appends the rank to one."""
    run = RunDir(Path())
    words = {"job_id": "JOB", "attempt": "ATTEMPT", "rank": "RANK", "digest": "DIGEST", "node": "NODE", "number": "N"}
    for name, value in vars(RunDir).items():
        if isinstance(value, _File | property):
            if isinstance(path := getattr(run, name), Path):
                yield name, str(path)
        elif inspect.isfunction(value) and typing.get_type_hints(value).get("return") in (Path, str):
            ids = [words[parameter] for parameter in [*inspect.signature(value).parameters][1:]]
            path = value(run, *ids) if ids else None  # `create` and others without an id name no file
            if path:
                yield name, f"{path}RANK" if isinstance(path, str) else str(path)


def _docstrings(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the first paragraph under each constant, field or function of a module or class, without its full stop."""
    found = {}
    for item, after in pairwise([*body, ast.Pass()]):
        if isinstance(item, ast.AnnAssign | ast.Assign):
            said = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            target = item.target if isinstance(item, ast.AnnAssign) else item.targets[0]
            found[ast.unparse(target)] = said
        elif isinstance(item, ast.FunctionDef):
            found[item.name] = ast.get_docstring(item) or ""
    return {name: " ".join(said.partition("\n\n")[0].split()).rstrip(".") for name, said in found.items()}


# --- Failures that `diagnose` recognises


def list_rules() -> dict[str, list[tuple[Rule, str]]]:
    """Return the rules of each topic, each with the text, state or end that it recognises."""
    rules = load_rules()
    found = {topic: [(rule, _example(rule)) for rule in own if rule.regex] for topic, own in rules.topics.items()}
    states = [(rule, rule.state) for rule in rules.own if rule.state]
    ends = [(rule, ENDS.get(rule.end, f"a rank ended by {rule.end}")) for rule in rules.own if rule.end]
    return found | {BARE: states + ends}


def recognised() -> str:
    """Return a table of the rules for each topic."""
    return _block(*(f"### {topic}\n{_rules(topic, rules)}".strip() for topic, rules in list_rules().items()))


def _rules(topic: str, rules: Sequence[tuple[Rule, str]]) -> str:
    seen = "state or end" if topic == BARE else "text, as an example"
    if all(rule.role == "consequence" for rule, _ in rules):
        return _table(f"name | {seen}", ((rule.key, text) for rule, text in rules))
    return _table(f"name | {seen} | again", ((rule.key, text, AGAIN[rule.again]) for rule, text in rules))


def _example(rule: Rule) -> str:
    text = rule.example
    short = text if len(text) <= LONGEST_EXAMPLE else f"{text[:LONGEST_EXAMPLE].rstrip()}..."
    return f"`{short.replace('`', '')}`"


# --- The front page


def claims() -> str:
    """Return what the front page claims, each with its number and how it is checked."""
    rules = load_rules().own
    measured = json.loads((REPOSITORY / "docs" / "benchmarks.json").read_text())
    rows = [row for part in measured.values() for row in part.get("rows", ())]
    (start,) = (row for row in rows if row["name"] == "start to first step, 2 x 8, fork")
    ours, theirs = (statistics.median(times) for times in (start["ours"], start["peers"]["srun torchrun"]))
    return _table(
        "slurmddp | number | check it",
        (
            (
                "loses nothing: a training that is preempted, killed or cut off ends with the same bits as a calm one",
                f"{count_interruptions()} kinds of interruption on a real Slurm, each with 2 and with 4 ranks",
                "`make soak` (an hour)",
            ),
            (
                "names the cause, and the rank that failed first, from the output of any Slurm job",
                f"{len({rule.key for rule in rules})} causes, told by {len(rules)} rules; any other is unknown",
                "`slurmddp diagnose slurm-17.out`, with an output of your own",
            ),
            (
                "starts 16 ranks on two nodes sooner (`--launcher fork`)",
                f"first step after {ours:.1f} s; srun and torchrun: {theirs:.1f} s, on the same machine",
                "`make bench ARGS=first_step`: [Benchmarks](benchmarks.md)",
            ),
        ),
    )


def count_interruptions() -> int:
    """Return how many kinds of interruption the survival tests play: their cases, and a node that is cut off."""
    body = ast.parse((REPOSITORY / "tests" / "test_survival.py").read_text()).body
    (cases,) = (item.value for item in body if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "CASES")
    return sum(not ast.literal_eval(name).endswith("calm") for name in cases.keys) + 1


# --- The rooms


def layers() -> str:
    """Return the layers of the package from the top down, as tests/test_doors.py holds them."""
    body = ast.parse((REPOSITORY / "tests" / "test_doors.py").read_text()).body
    named = {ast.unparse(item.targets[0]): item.value for item in body if isinstance(item, ast.Assign)}
    rooms = [[ast.literal_eval(room) for room in layer.elts] for layer in named["LAYERS"].elts]
    shown = [
        [f"`{room}`" if room.endswith(".py") else f"`{room}/`" for room in layer if room[:2] != "__"] for layer in rooms
    ]
    return _table("layer | rooms", ((number, ", ".join(layer)) for number, layer in enumerate(filter(None, shown), 1)))


def modules() -> str:
    """Return each module of the package with the first sentence of its docstring."""
    found = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in sorted(PACKAGE.rglob("*.py"))}
    rows = ((path.relative_to(PACKAGE), said) for path, said in found.items() if path.name[:2] != "__")
    return _table(
        "file | what it does",
        ((f"`{path}`", " ".join(re.split(r"(?<=[.])\s", said)[0].split())) for path, said in rows),
    )


# --- Markdown


def _block(*parts: str) -> str:
    """Return parts with empty lines around, which a comment beside them needs."""
    return "\n" + "\n\n".join(parts) + "\n\n"


def _code_block(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"


def _names(names: Iterable[str]) -> str:
    text = ", ".join(f"`{name}`" for name in names)
    return _block(textwrap.fill(text, WIDTH, break_on_hyphens=False))


def _table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a table; `head` has its column names as a row has them."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, "|".join("---" for _ in head.split("|")), *(" | ".join(row) for row in cells)]
    return _block("\n".join(f"|{line}|" if line[0] == "-" else f"| {line} |" for line in lines))


def _as_cell(text: str) -> str:
    """Return a sentence as a table has it: it begins with a small letter, unless with a name."""
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
