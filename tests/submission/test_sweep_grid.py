"""What is swept over, as people type it, and what each task then runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.config.job_array import FOLDER_LENGTH, Array, Task, folder_name
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.submission.sweep_grid import parse, settings, tasks


def job(*command, **values):
    return JobSpec(job_name="x", command=command, **values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=1e-3,1e-4", ("1e-3", "1e-4")),
        ("seed=1..4", ("1", "2", "3", "4")),
        ("seed=3..1", ("3", "2", "1")),
        ("n=0..10..5,99", ("0", "5", "10", "99")),
        ("n=-1..1", ("-1", "0", "1")),
        ('layers="64,64","32"', ("64,64", "32")),
        ("x=a,b,a", ("a", "b")),
        ("url=http://h/?a=1", ("http://h/?a=1",)),
        ("lr=0.1..0.3..0.1", ("0.1", "0.2", "0.3")),
        ("lr=3e-3..1e-3..1e-3", ("0.003", "0.002", "0.001")),
        ("x=1.5..2..0.3", ("1.5", "1.8")),
        ('x="[1,2]","[3]"', ("[1,2]", "[3]")),
        ("x=[1]", ("[1]",)),
        ("data=../a..b,2/a..b", ("../a..b", "2/a..b")),
    ],
)
def test_values_are_given_parted_by_commas_or_counted(text, values):
    assert list(parse([text]).values()) == [values]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["lr"], "give KEY=VALUE"),
        (["=1"], "give KEY=VALUE"),
        (["1x=1"], "give KEY=VALUE"),
        (["lr="], "empty value"),
        (["lr=1,,2"], "empty value"),
        (["lr=1", "lr=2"], "given twice"),
        (['x="a'], "close the quotes"),
        (["x=1..99999999999"], "fewer"),
        (["x=1..9..0"], "fewer"),
        (["lr=0.1..0.5"], "0.1..0.5 has no step; give one, as in 0.1..0.5..0.1"),
        (["x=a\nb"], "'a\\\\nb' has a character that cannot be printed; leave that character out"),
    ],
)
def test_what_cannot_be_read_is_refused(given, hint):
    with pytest.raises(UsageError, match=hint):
        parse(given)


def test_every_combination_or_side_by_side():
    values = parse(["a=1,2", "b=x,y"])
    every = [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y")]
    assert [tuple(one.values()) for one in settings(values, side_by_side=False)] == every
    assert settings(values, side_by_side=True) == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    with pytest.raises(UsageError, match="--zip needs the same number of values for each key, but a has 2, b has 3"):
        settings(parse(["a=1,2", "b=1,2,3"]), side_by_side=True)
    with pytest.raises(UsageError, match="more than 1000000"):
        settings(parse(["a=1..2000", "b=1..2000"]), side_by_side=False)


def test_the_values_stand_in_command():
    (one,) = tasks(job("train.py", "--lr={lr}", "{lr}/{seed}", "{}", '{"a": 1}'), [{"lr": "{seed}", "seed": "2"}])
    assert one.job.command == ("train.py", "--lr={seed}", "{seed}/2", "{}", '{"a": 1}')
    assert one.folder == "lr=_seed_,seed=2-" + one.folder[-16:]


def test_braces_of_the_programs_own_are_doubled():
    (one,) = tasks(job("t.py", "{lr}", "{{lr}}/{{step}}", "${HOME}", "${lr}"), [{"lr": "1"}])
    assert one.job.command == ("t.py", "1", "{lr}/{step}", "${HOME}", "$1")


@pytest.mark.parametrize("word", ["{wd}", "--wd={wd}", "{lr}{wd}"])
def test_a_place_without_values_is_refused(word):
    hint = r"COMMAND has \{wd}, but there is no --set wd; give --set wd=VALUE,..., or write \{\{wd}} if the program"
    with pytest.raises(UsageError, match=hint):
        tasks(job("t.py", "{lr}", word), [{"lr": "1"}])


def test_the_values_are_options_of_the_bundled_worker():
    first, second = tasks(job(), [{"lr": "1e-3", "sync-bn": "true"}, {"lr": "0.5", "sync-bn": "false"}])
    assert (first.job.worker.lr, first.job.worker.sync_bn) == (0.001, True)
    assert (second.job.worker.lr, second.job.worker.sync_bn) == (0.5, False)


@pytest.mark.parametrize(
    ("made", "key", "value", "hint"),
    [
        (job("train.py"), "lr", "1", r"COMMAND has no \{lr\}"),
        (job("train.py"), "nodes", "1", "--nodes is an option of the job .*; submit one sweep for each value"),
        (job(), "nodes", "1", "--nodes is an option of the job"),
        (job(), "lrate", "1", "unknown option of the bundled worker 'lrate'.*"),
        (job(), "lr", "-1", "--set lr: '-1' is not a finite number above 0"),
        (job(), "task", "nope", "--set task: 'nope' is not one of"),
    ],
)
def test_a_program_that_does_not_take_it_says_so(made, key, value, hint):
    with pytest.raises(UsageError, match=hint):
        tasks(made, [{key: value}])


def test_an_array_is_parted_where_slurm_takes_no_longer_one():
    whole = Array(tuple(Task({"n": str(number)}, job("t.py", str(number))) for number in range(5)), max_parallel=2)
    assert whole.indices == "0-4%2"
    assert [part.indices for part in whole.parts(2)] == ["0-1%2", "0-1%2", "0%2"]
    assert [task.values["n"] for part in whole.parts(2) for task in part.tasks] == list("01234")


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]*", fullmatch=True), st.text(min_size=1), min_size=1))
def test_a_folder_s_name_is_one_name_that_any_disk_holds(values):
    name = folder_name(values)
    assert name.isascii() and name.isprintable() and not set(name) & set("/\\ %{}'\"$`;&|<>*?!~")
    assert len(name) <= FOLDER_LENGTH and name not in (".", "..")


@given(st.lists(st.text(min_size=1), min_size=2, max_size=9, unique=True))
def test_two_settings_never_share_a_folder(values):
    assert len({folder_name({"x": value}) for value in values}) == len(values)


def test_nor_do_settings_of_which_one_reads_like_another():
    pairs = [("1,b=2", "3"), ("1", "2,b=3")]
    assert len({folder_name({"a": a, "b": b}) for a, b in pairs}) == len(pairs)
    assert folder_name({"a": "1,b=2"}) != folder_name({"a": "1", "b": "2"}) == "a=1,b=2"
