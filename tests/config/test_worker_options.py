"""What the bundled worker can be asked for."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.config.worker_options import WorkerOptions, arguments, parse
from slurmddp.errors import UsageError

OPTIONS = st.builds(
    WorkerOptions,
    task=st.sampled_from(["mnist", "linear", "gpt", "torchvision:resnet50", "pkg.module:Class"]),
    data=st.none() | st.text(min_size=1),
    epochs=st.integers(1, 2**31 - 1),
    batch_size=st.integers(1, 2**31 - 1),
    lr=st.floats(min_value=0, max_value=1e9, exclude_min=True),
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    compile=st.booleans(),
    find_unused_parameters=st.booleans(),
    bucket_mb=st.floats(min_value=0, max_value=1e6, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
    device=st.sampled_from(["auto", "cpu", "cuda"]),
)


@settings(deadline=None)
@given(options=OPTIONS)
def test_words_and_options_are_the_same_thing(options):
    assert parse(arguments(options)) == msgspec.structs.replace(options, data=options.source)


def test_the_words_name_task_data_and_epochs_and_what_is_not_default():
    assert arguments(WorkerOptions()) == ["--task=mnist", "--data=digits", "--epochs=10"]
    assert arguments(WorkerOptions(task="linear", lr=0.5))[3:] == ["--lr=0.5"]


def test_both_spellings_and_no_words_are_read():
    assert parse([]) == WorkerOptions()
    assert parse(["--task", "linear", "--epochs=5", "--batch-size", "8"]) == WorkerOptions(
        task="linear", epochs=5, batch_size=8
    )
    assert parse(["--epochs=1", "--epochs=2"]).epochs == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epoch", "3"], "unknown option '--epoch'; did you mean --epochs"),
        (["task"], "unknown option 'task'"),
        (["-m"], "unknown option '-m'"),
        (["--epochs"], "--epochs needs a value: a whole number, 1 to 2147483647"),
        (["--epochs", "0"], "--epochs: '0' is not a whole number, 1 to 2147483647"),
        (
            ["--task=cifar"],
            "--task: 'cifar' is not one of linear, mnist, cifar10, gpt, torchvision:MODEL, or package.module:Class",
        ),
        (["--sync-bn=maybe"], "--sync-bn: 'maybe' is not true or false"),
        (["--no-sync-bn=true"], "'--no-sync-bn=true': --no-sync-bn takes no value"),
        (["--no-lr"], "unknown option '--no-lr'"),
        (["--momentum=1"], "--momentum: '1' is not a number from 0 to below 1"),
        (["--lr=nan"], "--lr: 'nan' is not a"),
        (["--lr=inf"], "--lr: 'inf' is not a finite number above 0"),
        (["--lr=-1"], "--lr: '-1' is not a finite number above 0"),
        (["--seed=9223372036854775808"], "--seed: '9223372036854775808' is not a whole number from 0 to"),
        (["--device", "tpu"], "--device: 'tpu' is not one of auto, cpu, cuda"),
    ],
)
def test_a_wrong_word_is_one_line(words, message):
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_switch_is_turned_on_and_off_and_written_when_it_is_on():
    assert parse(["--sync-bn"]).sync_bn and not parse(["--sync-bn", "--no-sync-bn"]).sync_bn
    assert parse(["--sync-bn=true", "--epochs=2"]).sync_bn
    assert "--compile" in arguments(WorkerOptions(compile=True))
    assert not [word for word in arguments(WorkerOptions()) if "compile" in word]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"precision": "fp16", "device": "cpu"}, "--precision fp16 needs GPUs .*, and --device cpu was given"),
        ({"sync_bn": True, "device": "cpu"}, "--sync-bn needs GPUs"),
        ({"data": ""}, "--data: an empty text is not allowed"),
        ({"strategy": "fsdp", "sync_bn": True}, "--sync-bn is for --strategy ddp, not for fsdp; leave it out"),
        ({"strategy": "fsdp", "bucket_mb": 1.0}, "--bucket-mb is for --strategy ddp, not for fsdp"),
        (
            {"strategy": "fsdp", "precision": "fp16"},
            "--precision fp16 is not for --strategy fsdp; give --precision bf16",
        ),
    ],
)
def test_what_excludes_each_other_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        WorkerOptions(**given)
