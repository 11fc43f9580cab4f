"""A well-known script comes back as it must, by a look at its text."""

import pytest

from slurmddp.config import resolve as config
from slurmddp.config.command import parse
from slurmddp.config.recipes import find_recipe, load_recipes, starts_anew, trains_alone

LOOK_ALIKE = """\
out_dir = 'out'
exec(open('configurator.py').read())
if init_from == 'resume':
    torch.load(os.path.join(out_dir, 'ckpt.pt'))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(LOOK_ALIKE)
    (tmp_path / "small.py").write_text('out_dir = "out-small"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("words", "checkpoints"),
    [
        ("train.py", "out/ckpt.pt"),
        ("train.py small.py --lr=1", "out-small/ckpt.pt"),
        ("train.py small.py --out_dir=o", "o/ckpt.pt"),
    ],
)
def test_nanogpt_saves_where_its_options_or_its_files_say(words, checkpoints):
    found = find_recipe(parse(tuple(words.split())))
    assert (found.resume_args, found.checkpoints) == ("--init_from=resume", checkpoints)


@pytest.mark.parametrize("recipe", load_recipes(), ids=lambda recipe: recipe.name)
def test_each_recipe_is_recognised_by_its_marks(recipe, folder):
    (folder / "x.py").write_text("\n".join(recipe.marks))
    found = find_recipe(parse(("x.py", f"--{recipe.folder}", "a [b]")))
    assert found.name == recipe.name and found.checkpoints.startswith("a [[]b]/")


def test_a_device_has_no_recipe(folder):
    (folder / "zero.py").symlink_to("/dev/zero")
    assert find_recipe(parse(("zero.py",))) is None


def resolve(*words, **options):
    return config.resolve(options=options, words=words, job_file=None, environ={})


def test_a_recipe_is_used_unless_something_else_was_asked_for():
    resolved = resolve("train.py", "--init_from=scratch")
    assert resolved.spec.resumed_program == ("train.py", "--init_from=resume")
    assert resolved.origins["checkpoints"] == "the recipe of nanoGPT"
    assert resolve("train.py", recipe=False).spec.checkpoints is None
    assert resolve("train.py", resume_args="--x").spec.checkpoints is None
    assert resolve("train.py", launcher="manual").spec.resume_args is None


def test_a_script_that_names_nothing_that_resumes_starts_anew(folder):
    (folder / "own.py").write_text("import slurmddp\n")
    typed = ("train.py", "accelerate launch train.py", "own.py", "-m x", "")
    assert [line for line in typed if starts_anew(parse(tuple(line.split())))] == list(typed[:2])


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("import os, torch\nfrom torch import nn\nfrom tqdm import tqdm\n", True),
        ("import torch\nimport torch.distributed as dist\n", False),
        ("from torch.nn.parallel import DistributedDataParallel\n", True),
        ("import torch, lightning\n", False),
        ("import torch\nfrom .parallel import start\n", False),
        ("import torch\nfrom parallel import start\n", False),
        ("import torch, os\nfold = os.environ['RANK']\n", False),
        ("print('no torch')\n", False),
        ("import torch\nmatch torch:\n", False),
    ],
)
def test_a_script_for_one_gpu_is_known_by_what_it_imports(folder, text, alone):
    (folder / "own.py").write_text(text)
    assert trains_alone(parse(("own.py",))) is alone
