"""How an output ends: with an earlier start above it, with what is printed at any end, by Slurm, or not at all."""

import pytest

from .test_output_files import judge

STEPS = "".join(f"step {step}: loss {3 - step / 100:.3f}\n" for step in range(40))


def trace(error: str, *frames: str) -> str:
    lines = "".join(f'  File "{frame}\n' for frame in frames)
    return f"Traceback (most recent call last):\n{lines}{error}\n"


MAIN = '/home/me/train.py", line {}, in <module>'
BROKEN = '/home/me/model.py", line 12\n    def loss(self):\n                   ^'
STORED = trace("RuntimeError: the store is closed", MAIN.format(88), '/home/me/train.py", line 60, in main')

NOT_BEGUN = {
    "import": trace("IndentationError: unexpected indent", MAIN.format(4), BROKEN),
    "runpy": trace(
        "TabError: inconsistent use of tabs", '<frozen runpy>", line 88, in _run_code', MAIN.format(4), BROKEN
    ),
    "script": trace("SyntaxError: invalid syntax", '/home/me/train.py", line 30\n    optim="adam"\n          ^'),
    "not found": "/opt/env/bin/python: can't open file '/home/me/trian.py': [Errno 2] No such file or directory\n",
    "ranks": "".join("python3: can't open file 'trian.py': [Errno 2] No such file or directory\n" for _ in range(4)),
}


@pytest.mark.parametrize("before", NOT_BEGUN)
@pytest.mark.parametrize("label", ["", "0: ", "[rank0]: "])
def test_a_start_that_was_repaired_is_not_the_last_one(before, label):
    text = NOT_BEGUN[before] + STORED
    found = judge("".join(f"{label}{line}\n" for line in text.splitlines()))
    assert "the store is closed" in found.what


@pytest.mark.parametrize(
    "behind",
    [
        trace("RuntimeError: the store is closed", '/home/me/tool.py", line 88, in <module>'),  # of another program
        trace("subprocess.CalledProcessError: Command 'python train.py' died", MAIN.format(88)),
        trace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py", MAIN.format(88)),
        "",
    ],
)
def test_a_start_that_was_not_repaired_is_the_last_one(behind):
    assert "IndentationError" in judge(NOT_BEGUN["import"] + behind).what


def test_a_child_that_could_not_be_imported_is_no_start():
    child = trace("SyntaxError: invalid syntax", '<string>", line 1, in <module>', MAIN.format(4), BROKEN)
    parent = trace("RuntimeError: a worker has ended", MAIN.format(88))
    assert "SyntaxError" in judge(child + parent).what
