"""The scripts of the documentation train, and resume at their ends."""

import re
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.preloaded
DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    """The only block of code of a page in this language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return text


def test_the_training_of_the_docs_trains_and_a_second_run_resumes_at_its_end(start, tmp_path):
    (tmp_path / "train.py").write_text(block("training.md", "python"))
    begun = start("srun", 2, "train.py").wait()
    assert begun.statuses == [0, 0] and "resumed" not in begun.log(0), begun.log(0)
    run = begun.run.path
    first = torch.load(run / "model.pt", weights_only=True)
    (run / "model.pt").unlink()
    again = start("srun", 2, "train.py", run=begun.run, attempt="1.0").wait()
    (checkpoint,) = run.glob("checkpoints/step-*")
    assert again.statuses == [0, 0], again.log(0)
    assert f"resumed at step {int(checkpoint.name[5:])} from {checkpoint.name}" in again.log(0)
    for path in (run / "model.pt", checkpoint / "model.pt"):
        second = torch.load(path, weights_only=True)
        assert first.keys() == second.keys() == torch.nn.Linear(16, 1).state_dict().keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


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


def test_the_tutorials_diff_makes_its_first_script_resumable(start, tmp_path):
    """The diff of the second tutorial fits the script of the first; what comes out trains, and resumes at its end."""
    diff = block("first-resumable-training.md", "diff")
    (tmp_path / "resumable.py").write_text(patched(block("first-job.md", "python"), diff))
    begun = start("srun", 2, "resumable.py", "--epochs", "2").wait()
    again = start("srun", 2, "resumable.py", "--epochs", "2", run=begun.run, attempt="1.0").wait()
    assert begun.statuses == again.statuses == [0, 0], begun.log(0) + again.log(0)
    assert "step 0: loss" in begun.log(0) and "resumed at step 20 from" in again.log(0)
