"""The pages: what they repeat of the code is the code's own, their links lead somewhere, their examples run."""

import contextlib
import os
import re
import shlex
from pathlib import Path

import click
import pytest
from cogapp import Cog
from command_line import SLURMDDP, on_a_terminal, typed
from generated import context_of, help_of, list_commands

from slurmddp.cli import group
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.errors import SlurmddpError

REPOSITORY = Path(__file__).parent.parent
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
PAGES = [README, REPOSITORY / "jobs" / "README.md", *sorted(DOCS.glob("*.md"))]

FOREIGN = {
    *("--array", "--container-env", "--container-image", "--cpu", "--device", "--dryrun", "--init_from"),
    *("--local-rank", "--max_retries", "--mixed_precision", "--mpi", "--multirun", "--nnodes", "--no-accel"),
    *("--nproc-per-node", "--ntasks", "--nv", "--output", "--rdzv_port", "--resume", "--script"),
    *("--gpu-bind", "--gpus-per-task", "--rdzv-endpoint"),
    *("--no-kill", "--overlap", "--signal", "--test-only", "--transformer-impl", "--walltime"),
}
"""Options of other programs that the pages speak of."""


def test_the_pages_say_what_the_code_says(capsys):
    """`cog -r -I docs README.md docs/*.md` writes them anew."""
    pages = [str(page) for page in PAGES]
    assert Cog().main(["cog", "--check", "--diff", "-I", str(DOCS), *pages]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("path", list(list_commands()), ids=" ".join)
def test_every_command_has_a_help_of_60_lines_that_fits_80_columns(path):
    lines = help_of(path).splitlines()
    assert len(lines) <= 60
    assert all(len(line) <= 80 for line in lines)


def test_the_help_lists_every_command_once_in_groups():
    said = help_of(())
    groups = re.split(r"\n\n(?=Start|Watch|Look back|Cluster|Tools)", said)[1:]
    assert [text.partition(":")[0] for text in groups] == ["Start", "Watch", "Look back", "Cluster", "Tools"]
    listed = re.findall(r"^  (\w+)  +", "\n".join(groups), re.MULTILINE)
    assert listed == [path[0] for path in list_commands() if len(path) == 1]


def test_help_of_a_command_is_shown_by_the_word_help_too(tmp_path):
    for words in ((), ("submit",), ("sandbox", "up")):
        shown = typed("help", *words, cwd=tmp_path)
        assert (shown.returncode, shown.stdout) == (0, typed(*words, "--help", cwd=tmp_path).stdout)
    assert "there is no command 'sbatch'" in typed("help", "sbatch", cwd=tmp_path).stderr
    assert typed("-V", cwd=tmp_path).stdout == typed("--version", cwd=tmp_path).stdout


def test_help_is_in_colour_on_a_terminal_alone(tmp_path):
    line = (str(SLURMDDP), "submit", "--help")
    _, shown = on_a_terminal(*line, cwd=tmp_path)
    _, plain = on_a_terminal(*line, cwd=tmp_path, NO_COLOR="1")
    assert b"\x1b[1mCommon options of the job\x1b[0m:" in shown and b"\x1b[36m-N, --nodes N\x1b[0m" in shown
    assert plain == re.sub(rb"\x1b\[\d+m", b"", shown)
    assert "\x1b" not in typed("submit", "--help", cwd=tmp_path).stdout


def test_the_help_of_a_job_command_begins_with_what_is_needed():
    for name, option in (("sweep", "--set"), ("scale", "--gpus"), ("submit", "-N"), ("run", "--gpus-per-node")):
        assert re.search(r"^  (-\S+?)[ ,]", help_of((name,)), re.MULTILINE)[1] == option


def test_the_help_has_the_default_of_every_option_that_has_one():
    entries = re.split(r"\n(?=  -)", help_of(("submit",), "--help-all"))[1:]
    flat = {entry.split()[0].rstrip(","): " ".join(entry.split()) for entry in entries}
    assert all("[default: " in flat[name] for name in ("-N", "-c", "-p", "-A", "-t", "--mem", "--requeue", "--chain"))
    assert "[default: yes]" in flat["--preflight"] and "[default: 3]" in flat["--max-restarts"]


def test_every_option_has_an_anchor_of_its_own_in_the_reference():
    anchors = re.findall(r'<a id="([a-z-]+)" href="#\1">', (DOCS / "reference.md").read_text())
    assert len(anchors) == len(set(anchors))
    assert {"submit-chain", "job-nodes", "sweep-results-by", "sandbox-up-partition"} <= {*anchors}
    for path in list_commands():
        options = [item for item in context_of(path).command.params if isinstance(item, click.Option)]
        own = [item for item in options if not item.name.startswith(("worker_", "help"))]
        names = {max(item.opts, key=len).lstrip("-") for item in own} - {*JOB_FIELDS}
        assert {"-".join((*path, name)) for name in names} <= {*anchors}


def example_lines():
    """Yield each line that begins with `slurmddp`: of code blocks and code words of the pages, of scripts, of helps."""
    for page in (*PAGES, *sorted((REPOSITORY / "examples").glob("*.py"))):
        text = page.read_text()
        blocks = re.findall(r"^```(?:console|bash)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for block in blocks:
            joined = re.sub(r"\\\n\s*", " ", block)
            yield from ((page.name, line) for line in re.findall(r"^(?:\$ )?(slurmddp .*)", joined, re.MULTILINE))
        yield from ((page.name, " ".join(code.split())) for code in re.findall(r"`(slurmddp [^`]+)`", prose))
    for path in list_commands():
        for words, line in re.findall(r"`(slurmddp [^`]+)`|^  (slurmddp .*)$", help_of(path), re.MULTILINE):
            yield " ".join(path), " ".join((words or line).split())


def parse_example(line):
    """Let click parse a line as the shell gives it to slurmddp: up to a pipe, a semicolon or a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;<>&()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = []
    for word in lexer:
        if re.fullmatch(r"[|;<>&()]+", word):
            break
        words.append(word)
    command, context, words = group, click.Context(group, info_name="slurmddp", **group.context_settings), words[1:]
    while isinstance(command, click.Group) and words and words[0][:1] != "-":
        command = command.get_command(context, words[0])
        assert command, line
        context, words = click.Context(command, parent=context, info_name=words[0]), words[1:]
    with contextlib.suppress(click.exceptions.Exit):
        command.parse_args(context, list(words))


def test_every_example_is_a_line_that_slurmddp_understands(capsys):
    """A command alone, as `slurmddp exec`, is its name."""
    found = [
        (place, line) for place, line in dict.fromkeys(example_lines()) if re.search(r"^slurmddp [a-z-]\S* \S", line)
    ]
    found = [(place, line) for place, line in found if "[OPTIONS]" not in line]
    assert len(found) > 150
    wrong = []
    for place, line in found:
        try:
            parse_example(line)
        except (click.ClickException, SlurmddpError) as error:
            wrong.append((place, line, str(error)))
    assert not wrong
    assert "passed to the program" not in capsys.readouterr().err


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
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n")
    (tmp_path / "exp.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    examples = re.findall(r"(?:^|\$ |`|\()slurmddp (?:submit|render) (.*?)(?=  +#|`|\)?$)", text, re.MULTILINE)
    assert len(examples) >= 7
    for example in examples:
        words = [word for word in example.split() if word not in {"--follow", "--wait"}]
        done = typed("render", *words, cwd=tmp_path, PATH=os.environ["PATH"])
        assert done.returncode == 0, (example, done.stderr)


def test_the_readme_is_short():
    assert README.stat().st_size <= 6000


def test_the_pages_name_only_options_that_there_are():
    known = set(re.findall(r"--[a-z][a-z-]*", (DOCS / "reference.md").read_text()))
    for page in PAGES:
        text = re.sub(r"```bash\n.*?```", "", page.read_text(), flags=re.DOTALL)  # batch scripts
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z_-]*", text)) - FOREIGN <= known, page


def test_every_page_is_in_the_nav_of_the_site():
    named = re.findall(r": ([a-z-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in DOCS.glob("*.md"))
    assert named[:3] == ["index.md", "ten-minutes.md", "own-script.md"]


def test_the_sidebar_has_four_parts_with_at_most_twenty_entries():
    nav = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:")[2]
    parts, entries = (re.findall(rf"^ {{{indent}}}- ", nav, re.MULTILINE) for indent in (2, 6))
    assert len(parts) == 4 and len(entries) <= 20


def test_the_search_leaves_out_the_decisions():
    assert (DOCS / "decisions.md").read_text().startswith("---\nsearch:\n  exclude: true\n---\n")


def test_the_pages_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), (page, link)


def test_the_files_that_the_architecture_names_are_there():
    """Of the package, or of the repository."""
    text = (DOCS / "architecture.md").read_text().partition("## Every file")[0]
    for name in re.findall(r"`([a-z_./]+(?:\.py|\.j2|/))`", text):
        places = (REPOSITORY / "slurmddp" / name, REPOSITORY / name)
        assert any(place.exists() for place in places), name
