"""COMMAND is taken as people type it; what would be lost is refused."""

import pytest

from slurmddp.config.command import (
    as_name,
    check_executable,
    interpreter,
    is_worker,
    name_of,
    normalise,
    read_launch,
    replace_arguments,
    script_of,
)
from slurmddp.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("train.py --lr 0.1", "train.py --lr 0.1"),
        ("python train.py --lr 0.1", "train.py --lr 0.1"),
        ("python3.11 -u train.py", "train.py"),
        ("/opt/env/bin/python -m pkg.train x", "-m pkg.train x"),
        ("torchrun train.py -- --x", "train.py -- --x"),
        ("python -m torch.distributed.run train.py x", "train.py x"),
        ("python3 -u -m torch.distributed.run -m pkg.train", "-m pkg.train"),
        ("-m torch.distributed.run train.py", "train.py"),
        (
            "accelerate launch --config_file a.yaml train.py",
            "-m accelerate.commands.launch --config_file a.yaml train.py",
        ),
        ("/e/bin/accelerate launch train.py", "-m accelerate.commands.launch train.py"),
        ("python -m accelerate.commands.launch train.py", "-m accelerate.commands.launch train.py"),
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
        (
            ("torchrun", "--nnodes=2", "train.py"),
            "torchrun starts ranks, and so does slurmddp; .* options: --nodes 2 train.py$",
        ),
        (("python", "-O", "train.py"), "of python's options only -u and -m are allowed; leave '-O' out"),
        (("accelerate", "launch", "--cpu"), "has no script"),
        (("-m",), "needs a module"),
        (("", "x"), "empty word"),
        (("train.py", "a\0b"), "NUL"),
    ],
)
def test_what_would_be_lost_is_refused(words, message):
    with pytest.raises(UsageError, match=message):
        normalise(words)


@pytest.mark.parametrize(
    ("typed", "python"),
    [
        ("/opt/env/bin/python3.11 -u train.py", "/opt/env/bin/python3.11"),
        ("env/bin/python train.py", "env/bin/python"),
        ("/opt/env/bin/torchrun train.py", "/opt/env/bin/python"),
        ("/opt/env/bin/accelerate launch train.py", "/opt/env/bin/python"),
        ("python train.py", None),
        ("torchrun train.py", None),
        ("dir/train.py", None),
        ("", None),
    ],
)
def test_a_python_that_is_named_by_its_path_is_the_one_that_is_meant(typed, python):
    assert interpreter(tuple(typed.split())) == python


def test_the_kinds_of_command_are_told_apart():
    assert is_worker(()) and is_worker(("--task", "mnist"))
    assert not is_worker(("-m", "x")) and not is_worker(("train.py",))
    assert script_of(("dir/train.py", "-x")) == "dir/train.py"
    assert script_of(("-m", "x")) is None and script_of(()) is None


def test_the_script_of_accelerate_launch_is_known():
    words = normalise(("accelerate", "launch", "--mixed_precision", "bf16", "a/fine.py", "b.py"))
    assert (script_of(words), name_of(words)) == ("a/fine.py", "fine")
    words = normalise(("accelerate", "launch", "-m", "pkg.train", "b.py"))
    assert (script_of(words), name_of(words)) == (None, "train")
    with pytest.raises(UsageError, match="without --no-python, accelerate launch is understood"):
        check_executable(("accelerate", "launch", "train.py"))


def test_names_come_from_scripts_and_modules():
    assert name_of(("exp/train.v2.py",)) == "train.v2"
    assert name_of(("-m", "pkg.train", "x")) == "train"
    assert as_name("my train!") == "my-train-"
    assert as_name("17") == "job-17"
    assert as_name("17_3") == "job-17_3"
    assert as_name("..") == "job-"


def test_an_executable_is_taken_as_it_is():
    assert check_executable(("python", "-u", "-m")) == ("python", "-u", "-m")


@pytest.mark.parametrize("words", [("",), ("-m", "x"), ("prog", "\0")])
def test_what_can_be_no_executable_is_refused(words):
    with pytest.raises(UsageError):
        check_executable(words)


@pytest.mark.parametrize(
    ("command", "more", "result"),
    [
        ("train.py --lr 0.1", "--init_from=resume", "train.py --lr 0.1 --init_from=resume"),
        ("train.py --init_from=scratch --lr 0.1", "--init_from=resume", "train.py --lr 0.1 --init_from=resume"),
        ("train.py --init_from scratch conf.py", "--init_from=resume", "train.py conf.py --init_from=resume"),
        ("train.py --init_from=scratch conf.py", "--init_from resume", "train.py conf.py --init_from resume"),
        ("train.py --resume conf.py", "--resume", "train.py conf.py --resume"),
        ("train.py --fresh --lr -1 --start -1", "--fresh --start 5", "train.py --lr -1 --fresh --start 5"),
        ("-m pkg.train -m x --seed 1", "-m y", "-m pkg.train --seed 1 -m y"),
        ("train.py trainer.resume=false a=b", "trainer.resume=true", "train.py a=b trainer.resume=true"),
        ("train.py --a --b", "--a=1", "train.py --b --a=1"),
        ("train.py --init=a --init b", "--init=c", "train.py --init=c"),
        ("train.py --a", " ", "train.py --a"),
        ("train.py --init_from_x=1", "--init_from=resume", "train.py --init_from_x=1 --init_from=resume"),
    ],
)
def test_arguments_are_replaced_by_those_of_the_same_name(command, more, result):
    assert replace_arguments(tuple(command.split()), tuple(more.split())) == tuple(result.split())


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("torchrun --standalone --nproc_per_node=8 train.py --lr 1", ": --ntasks-per-node 8 train.py --lr 1"),
        ("python -m torch.distributed.run --nnodes 2 -m pkg.train", ": --nodes 2 -m pkg.train"),
        ("torchrun --nproc-per-node gpu train.py", "options: train.py"),
        (
            "/opt/bin/deepspeed --num_gpus=4 train.py --nodes 9",
            ": --ntasks-per-node 4 train.py --nodes 9; .*LOCAL_RANK",
        ),
        ("composer -n 8 train.py 'a b'", "options: train.py"),
        ("srun ./train", "options: train.py --lr 0.1"),
    ],
)
def test_another_launcher_is_refused_with_the_words_to_type(typed, instead):
    for read in (normalise, check_executable):
        with pytest.raises(UsageError, match="starts ranks, and so does slurmddp.*" + instead):
            read(tuple(typed.split()))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("python -m torch.distributed.run", "torchrun has no script; name one, as in: torchrun train.py --lr 0.1"),
        ("torchrun --standalone", "torchrun has no script; name one"),
        ("torchrun --nnodes=1:2 train.py", "--nnodes=1:2 is a range, and slurmddp is not elastic; give --nodes N"),
        ("torchrun --nnodes 1:2 train.py", "--nnodes 1:2 is a range"),
    ],
)
def test_a_launcher_without_a_script_or_with_a_range_of_nodes_is_refused(typed, message):
    for read in (normalise, check_executable):
        with pytest.raises(UsageError, match=message):
            read(tuple(typed.split()))


def test_the_numbers_of_accelerate_launch_are_told_as_our_options():
    with pytest.raises(UsageError, match="and type --nodes 2 --ntasks-per-node 4 accelerate launch ... train.py$"):
        normalise(("accelerate", "launch", "--num_machines", "2", "--num_processes=8", "train.py"))


def test_uv_is_an_executable():
    with pytest.raises(UsageError, match="--no-python before it, .*: --venv .venv train.py --x"):
        normalise(("uv", "run", "train.py", "--x"))
    assert check_executable(("uv", "run", "train.py")) == ("uv", "run", "train.py")


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("torchrun --nproc-per-node 8 train.py --lr 1", ("train.py --lr 1", None, 8, ())),
        ("torchrun --nnodes=2 --nproc_per_node=8 -m pkg.train", ("-m pkg.train", 2, 8, ())),
        (
            "torchrun --standalone --nproc-per-node=gpu --rdzv-id 7 a.py",
            ("a.py", None, None, ("--standalone", "--rdzv-id")),
        ),
        ("python -m torch.distributed.run --nnodes 2 a.py", ("a.py", 2, None, ())),
        ("mpirun -np 8 python train.py", ("train.py", None, 8, ())),
        ("srun -N 2 -n 16 python3 train.py", ("train.py", 2, 8, ())),
        ("deepspeed train.py --deepspeed", ("train.py --deepspeed", None, None, ())),
        (
            "accelerate launch --num_processes 8 --num_machines 2 --mixed_precision bf16 a.py",
            ("accelerate launch --mixed_precision bf16 a.py", 2, 4, ()),
        ),
        ("torchrun train.py", None),
        ("accelerate launch --mixed_precision bf16 a.py", None),
        ("torchrun --nnodes 1:4 a.py", None),
        ("srun -n 3 -N 2 python a.py", None),
        ("deepspeed --hostfile=hosts a.py", None),
        ("mpirun -np 8 -x A=1 python a.py", None),
        ("train.py --nproc-per-node 8", None),
    ],
)
def test_a_launchers_line_is_read(typed, read):
    found = read_launch(tuple(typed.split()))
    launch = found and (" ".join(found.command), found.nodes, found.ranks_per_node, found.left_out)
    assert launch == read
