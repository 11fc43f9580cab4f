"""The pages: what they repeat of the code is the code's own, their links lead somewhere, their examples run."""

import os
import re
from pathlib import Path

import pytest
from cogapp import Cog
from command_line import typed
from generated import help_of, list_commands

from slurmddp.config.job_spec import JOB_FIELDS

REPOSITORY = Path(__file__).parent.parent
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
PAGES = [README, REPOSITORY / "jobs" / "README.md", *sorted(DOCS.glob("*.md"))]

FOREIGN = {
    *("--array", "--container-env", "--container-image", "--cpu", "--device", "--dryrun", "--init_from"),
    *("--local-rank", "--max_retries", "--mixed_precision", "--mpi", "--multirun", "--nnodes", "--no-accel"),
    *("--nproc-per-node", "--ntasks", "--nv", "--output", "--protocol", "--rdzv_port", "--resume", "--script"),
    *("--signal", "--test-only", "--transformer-impl", "--walltime"),
}
"""Options of other programs that the pages speak of."""


def test_the_pages_say_what_the_code_says(capsys):
    """`cog -r -I docs README.md docs/*.md` writes them anew."""
    pages = [str(page) for page in PAGES]
    assert Cog().main(["cog", "--check", "--diff", "-I", str(DOCS), *pages]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("path", list(list_commands()), ids=" ".join)
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
