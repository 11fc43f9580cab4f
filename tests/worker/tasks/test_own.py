"""A task of the user's is found as `python -m` would find it, and what is wrong with it is one line."""

import re
import sys
from pathlib import Path

import pytest

from slurmddp.errors import UsageError
from slurmddp.worker.options import WorkerOptions
from slurmddp.worker.tasks import make_task
from slurmddp.worker.tasks.own import load

PAGE = Path(__file__).parents[3] / "docs" / "tasks.md"
HEAD = "import torch\nfrom slurmddp.worker.task import InMemory, Task\n"
WHOLE = (
    "    def __init__(self, options):\n        self.train = InMemory(torch.zeros(3, 1), torch.zeros(3, 1))\n"
    "    def model(self): return torch.nn.Linear(1, 1)\n"
    "    def losses(self, outputs, targets): return (outputs - targets).squeeze(1)\n"
)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module into the working folder and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)

    def write(text: str, name: str = "own_task") -> str:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + text)
        return name

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_class_of_a_module_in_the_working_folder_is_found(module):
    name = module("class Mine(Task):\n" + WHOLE, "pkg.deep.own")
    task = make_task(WorkerOptions(task=f"{name}:Mine"))
    assert (type(task).__name__, len(task.train)) == ("Mine", 3)


@pytest.mark.parametrize(
    ("text", "task", "message"),
    [
        ("", "none_such:Mine", "there is no module none_such in .* nor among those installed"),
        ("", "own_task.none:Mine", "there is no module own_task.none in"),
        ("", "own_task:Mine", r"own_task has no Mine; write class NAME\(slurmddp.worker.task.Task\) there"),
        ("class Other(Task): pass", "own_task:Mine", "own_task has no Mine; its tasks are Other$"),
        ("class Mine: pass", "own_task:Mine", r"Mine is no task; write class Mine\(slurmddp.worker.task.Task\)"),
        ("Mine = 3", "own_task:Mine", "Mine is no task"),
        (
            "class Mine(Task):\n    def losses(self, o, t): pass",
            "own_task:Mine",
            "Mine has no method model; docs",
        ),
        ("class Mine(Task):\n    def model(self): pass", "own_task:Mine", "Mine has no method losses"),
    ],
)
def test_what_is_wrong_is_one_line(module, text, task, message):
    module(text)
    with pytest.raises(UsageError, match=message) as caught:
        load(task)
    assert "\n" not in str(caught.value)
    assert "--task" in str(caught.value)


def test_a_module_that_the_users_module_lacks_is_its_own_error(module):
    name = module("import none_such\n")
    with pytest.raises(ModuleNotFoundError, match="none_such"):
        load(f"{name}:Mine")


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("pass", "own_task:Mine: __init__ sets no self.train, the samples to train on"),
        ("self.train = InMemory(torch.zeros(0, 1), torch.zeros(0, 1))", "own_task:Mine: self.train is empty"),
    ],
)
def test_a_task_without_samples_is_refused(module, init, message):
    module("class Base(Task):\n" + WHOLE + f"class Mine(Base):\n    def __init__(self, options):\n        {init}\n")
    with pytest.raises(UsageError, match=message):
        make_task(WorkerOptions(task="own_task:Mine"))


def test_losses_of_another_shape_are_one_line(module, tmp_path, alone):
    """A mean over the batch would weigh the ranks' samples wrongly, without a sound."""
    module("class Base(Task):\n" + WHOLE + "class Mine(Base):\n    def losses(self, o, t): return (o - t).mean()\n")
    ended = alone("--task=own_task:Mine", "--epochs=1", cwd=tmp_path)
    assert ended.statuses == [77]
    assert "losses" in ended.stderr and "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") <= 2, ended.stderr


def test_the_task_of_the_docs_trains_on_two_ranks(tmp_path, start):
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "hills.py").write_text(text)
    words = ["--task=hills:Hills", "--epochs=5", "--optimizer=adam", "--lr=0.01"]
    ended = start("fork", 2, *words, cwd=tmp_path).wait(280)
    assert ended.statuses == [0], ended.log(0)
    assert ended.events("metrics")[-1]["values"]["off"] < 0.2
