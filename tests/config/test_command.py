"""COMMAND is taken as people type it; what would be lost is refused."""

import pytest

from slurmddp.config.command import as_name, parse, parse_worker_words, replace_arguments
from slurmddp.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("train.py --lr 0.1", "train.py --lr 0.1"),
        ("python train.py --lr 0.1", "train.py --lr 0.1"),
        ("python3.11 -u train.py", "train.py"),
        ("/opt/env/bin/python -m pkg.train x", "-m pkg.train x"),
        ("torchrun train.py -- --x", "train.py --x"),
        ("torchrun -m pkg.train -- -- --x", "-m pkg.train -- --x"),
        ("torchrun -- train.py -- --x", "train.py -- --x"),
        ("train.py -- --x", "train.py -- --x"),
        ("nequip-train -cn full", "nequip-train -cn full"),
        ("python -m torch.distributed.launch train.py x", "-m torch.distributed.launch train.py x"),
        ("python -m torch.distributed.launch --use_env train.py x", "train.py x"),
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
    words = tuple(taken.split())
    assert parse(tuple(typed.split())).words == words
    assert parse(words).words == words, "what was read once is read the same again"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("python",), "alone"),
        (
            ("torchrun", "--nnodes=2", "--tee", "3", "train.py"),
            "torchrun starts ranks, and so does slurmddp; .* options: --nodes 2 train.py$",
        ),
        (("python", "-O", "train.py"), "of python's options only -u and -m are allowed; leave '-O' out"),
        (("accelerate", "launch", "--cpu"), "has no script"),
        (("-m",), "needs a module"),
        (("", "x"), "empty word"),
        (("-",), "a script cannot be read from standard input"),
        (("train.py", "a\0b"), "NUL"),
        (("uv", "run", "train.py", "--x"), "--no-python before it, .*: --venv .venv train.py --x"),
    ],
)
def test_what_would_be_lost_is_refused(words, message):
    with pytest.raises(UsageError, match=message):
        parse(words)


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
    assert parse(tuple(typed.split())).python == python


@pytest.mark.parametrize(
    ("typed", "kind", "path", "name"),
    [
        ("", "worker", None, ""),
        ("--task mnist", "worker", None, ""),
        ("exp/train.v2.py -x", "script", "exp/train.v2.py", "train.v2"),
        ("-m pkg.train x", "module", None, "train"),
        ("accelerate launch --mixed_precision bf16 a/fine.py b.py", "script", "a/fine.py", "fine"),
        ("accelerate launch --module pkg.train b.py", "module", None, "train"),
        ("--no-python bin/fit x.py", "executable", "bin/fit", "fit"),
        ("--no-python python -u -m", "executable", None, "python"),
        ("--no-python uv run train.py", "executable", None, "uv"),
    ],
)
def test_the_kind_of_a_command_says_what_its_file_and_its_name_are(typed, kind, path, name):
    command = parse_worker_words(tuple(typed.split()))
    assert (command.kind, command.script) == (kind, path if kind == "script" else None)
    assert (None if command.path_place is None else command.words[command.path_place]) == path
    assert kind == "worker" or command.name == name


@pytest.mark.parametrize(
    ("text", "name"), [("my train!", "my-train-"), ("17", "job-17"), ("17_3", "job-17_3"), ("..", "job-")]
)
def test_the_nearest_name_that_is_allowed_is_found(text, name):
    assert as_name(text) == name


@pytest.mark.parametrize("words", [("",), ("-m", "x"), ("prog", "\0")])
def test_what_can_be_no_executable_is_refused(words):
    with pytest.raises(UsageError):
        parse(words, executable=True)


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
        ("torchrun --tee 3 --nproc_per_node=8 train.py --lr 1", ": --ntasks-per-node 8 train.py --lr 1"),
        ("python -m torch.distributed.run --nnodes 2 -x -m pkg.train", ": --nodes 2 -m pkg.train"),
        ("torchrun --nproc-per-node cpu train.py", "options: train.py"),
        (
            "/opt/bin/deepspeed --hostfile=h --num_gpus=4 train.py --nodes 9",
            ": --ntasks-per-node 4 train.py --nodes 9; .*LOCAL_RANK",
        ),
        ("srun -n 3 -N 2 python a.py", "options: a.py"),
        ("srun ./train", "options: train.py --lr 0.1"),
    ],
)
def test_another_launcher_is_refused_with_the_words_to_type(typed, instead):
    for executable in (False, True):
        with pytest.raises(UsageError, match="starts ranks, and so does slurmddp.*" + instead):
            parse(tuple(typed.split()), executable=executable)


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
    for executable in (False, True):
        with pytest.raises(UsageError, match=message):
            parse(tuple(typed.split()), executable=executable)


def test_a_launcher_as_an_executable_is_refused_with_what_is_understood_without_it():
    with pytest.raises(UsageError, match="without --no-python, accelerate launch is understood"):
        parse(("accelerate", "launch", "train.py"), executable=True)


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
        (
            "python -m torch.distributed.launch --nproc_per_node=8 --nnodes=2 --node_rank=0 -m pkg.train",
            ("-m torch.distributed.launch -m pkg.train", 2, 8, ("--node-rank",)),
        ),
        ("srun -N 2 -n 16 python3 train.py", ("train.py", 2, 8, ())),
        ("deepspeed train.py --deepspeed", ("train.py --deepspeed", None, None, ())),
        ("composer -n 8 train.py", ("train.py", None, 8, ())),
        (
            "accelerate launch --num_processes 8 --num_machines 2 --mixed_precision bf16 a.py",
            ("-m accelerate.commands.launch --mixed_precision bf16 a.py", 2, 4, ()),
        ),
    ],
)
def test_a_launchers_line_is_read(typed, read):
    command = parse(tuple(typed.split()))
    assert command.launch
    assert (" ".join(command.words), *command.launch[1:]) == read


@pytest.mark.parametrize("typed", ["torchrun train.py", "accelerate launch --cpu a.py", "train.py --nproc-per-node 8"])
def test_a_line_that_asks_for_nothing_has_no_launch(typed):
    assert parse(tuple(typed.split())).launch is None
