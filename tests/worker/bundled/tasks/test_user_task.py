"""A task of the user's is found as `python -m` would find it, and what is wrong with it is one line."""

import re
import sys
import types
from pathlib import Path

import pytest
import torch

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks import load_class, make_task
from slurmddp.worker.bundled.train import training_batches

pytestmark = pytest.mark.preloaded

PAGE = Path(__file__).parents[4] / "docs" / "tasks.md"
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
        load_class(task)
    assert "\n" not in str(caught.value)
    assert "--task" in str(caught.value)


def test_a_module_that_the_users_module_lacks_is_its_own_error(module):
    name = module("import none_such\n")
    with pytest.raises(ModuleNotFoundError, match="none_such"):
        load_class(f"{name}:Mine")


def test_the_task_of_the_docs_trains_on_two_ranks(tmp_path, start):
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "hills.py").write_text(text)
    words = ["--task=hills:Hills", "--epochs=5", "--optimizer=adam", "--lr=0.01"]
    ended = start("fork", 2, *words, cwd=tmp_path).wait(800)
    assert ended.statuses == [0], ended.log(0)
    assert ended.events("metrics")[-1]["values"]["off"] < 0.2


DRAWS = (
    "class Mine(Task):\n"
    "    def __init__(self, options):\n"
    "        self.train = self.test = InMemory(torch.zeros(8, 1), torch.zeros(8, 1))\n"
    "    def model(self): return torch.nn.Linear(1, 1)\n"
    "    def losses(self, outputs, targets): return (outputs - targets).squeeze(1)\n"
    "    def transform(self, inputs):\n"
    "        print('drew', torch.rand(1).item(), flush=True)\n"
    "        return inputs\n"
    "    def metrics(self, outputs, targets): return {'one': torch.ones(len(outputs)SHAPE)}\n"
)


def test_ranks_draw_numbers_of_their_own_and_hold_the_same_model(module, tmp_path, start):
    module(DRAWS.replace("SHAPE", ""))
    words = ["--task=own_task:Mine", "--epochs=1", "--batch-size=1", "--save-all-ranks"]
    ended = start("fork", 2, *words, cwd=tmp_path).wait()
    assert ended.statuses == [0], ended.log(0)
    first, second = ([line for line in ended.log(rank).splitlines() if line.startswith("drew")] for rank in (0, 1))
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)
    assert ended.events("metrics")[-1]["values"]["one"] == 1.0
    models = [torch.load(ended.run.rank_model(rank), weights_only=True) for rank in (0, 1)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DRAWS.replace("SHAPE", ", 1"), r"metrics\(\) for one gave a tensor of shape \(8, 1\)"),
        (
            DRAWS.replace("targets).squeeze(1)", "targets).mean()").replace("SHAPE", ""),
            r"losses\(\) gave a tensor of shape",
        ),
    ],
    ids=["metrics", "losses"],
)
def test_numbers_of_another_shape_are_one_line(module, tmp_path, alone, text, message):
    """They would be weighed wrongly, without a sound."""
    module(text)
    ended = alone("--task=own_task:Mine", "--epochs=1", cwd=tmp_path)
    assert ended.statuses == [77] and "Traceback" not in ended.stderr
    assert re.search(f"^Error: --task own_task:Mine: {message}", ended.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("pass", "own_task:Mine: __init__ sets no self.train, the samples to train on"),
        ("self.train = InMemory(torch.zeros(0, 1), torch.zeros(0, 1))", "own_task:Mine: self.train is empty"),
        ("self.train = InMemory(torch.zeros(3, 1), torch.zeros(2, 1))", "InMemory: 3 inputs and 2 targets"),
        ("self.train = [{'x': 1}]", r"self.train\[0\] is no pair of an input and its target"),
        ("self.train = iter([1])", "self.train has no length or no samples by number; give a map-style dataset"),
        (
            "self.train = InMemory(torch.zeros(3, 1), torch.zeros(3, 1)); self.test = []",
            "self.test is empty",
        ),
    ],
)
def test_samples_that_are_missing_or_no_pairs_are_refused(module, init, message):
    text = WHOLE.replace("self.train = InMemory(torch.zeros(3, 1), torch.zeros(3, 1))", init)
    module("class Mine(Task):\n" + text)
    with pytest.raises(UsageError, match=message):
        make_task(WorkerOptions(task="own_task:Mine"))


def test_loaders_draw_other_numbers_on_other_ranks_and_after_a_resume():
    """What a data set draws in a loader's process depends on the rank's seed and on the position."""
    seeds = set()
    for seed, consumed in [(1, 0), (2, 0), (1, 8)]:
        torch.manual_seed(seed)
        sampler = types.SimpleNamespace(consumed=consumed, indices=lambda _: torch.arange(4), global_batch=4)
        batches = training_batches(Drawn(), sampler, 4, workers=1, device=torch.device("cpu"))
        seeds.add(tuple(next(batches)[0].flatten().tolist()))
    assert len(seeds) == 3


class Drawn(torch.utils.data.Dataset):
    """Samples that are drawn anew each time."""

    def __len__(self) -> int:
        """Return as many as nobody asks for."""
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a number that is drawn here, and the place."""
        return torch.rand(1), torch.tensor([float(index)])
