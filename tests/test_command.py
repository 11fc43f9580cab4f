"""COMMAND is taken as people type it; what would be lost is refused."""

import pytest

from slurmddp.command import as_name, is_worker, name_of, normalise, script_of
from slurmddp.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("train.py --lr 0.1", "train.py --lr 0.1"),
        ("python train.py --lr 0.1", "train.py --lr 0.1"),
        ("python3.11 -u train.py", "train.py"),
        ("/opt/env/bin/python -m pkg.train x", "-m pkg.train x"),
        ("torchrun train.py -- --x", "train.py -- --x"),
        ("-m pkg.train", "-m pkg.train"),
        ("--task linear", "--task linear"),
        ("", ""),
    ],
)
def test_the_leading_word_is_understood_and_dropped(typed, taken):
    assert normalise(tuple(typed.split())) == tuple(taken.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("python",), "alone"),
        (("torchrun", "--nnodes=2", "train.py"), "options of slurmddp"),
        (("python", "-O", "train.py"), "not understood"),
        (("-m",), "needs a module"),
        (("", "x"), "empty word"),
        (("train.py", "a\0b"), "NUL"),
    ],
)
def test_what_would_be_lost_is_refused(words, message):
    with pytest.raises(UsageError, match=message):
        normalise(words)


def test_the_kinds_of_command_are_told_apart():
    assert is_worker(()) and is_worker(("--task", "mnist"))
    assert not is_worker(("-m", "x")) and not is_worker(("train.py",))
    assert script_of(("dir/train.py", "-x")) == "dir/train.py"
    assert script_of(("-m", "x")) is None and script_of(()) is None


def test_names_come_from_scripts_and_modules():
    assert name_of(("exp/train.v2.py",)) == "train.v2"
    assert name_of(("-m", "pkg.train", "x")) == "train"
    assert as_name("my train!") == "my-train-"
    assert as_name("17") == "job-17"
    assert as_name("..") == "job-"
