"""Lightning gets a callback in the ranks of a run alone; what that does is shown by tests/frameworks."""

from importlib.metadata import entry_points

from slurmddp.runtime import lightning


def test_a_process_that_is_no_rank_of_a_run_gets_none():
    assert lightning.for_lightning() == lightning.for_pytorch_lightning() == []


def test_lightning_finds_it():
    for group, factory in [
        ("lightning.pytorch.callbacks_factory", lightning.for_lightning),
        ("pytorch_lightning.callbacks_factory", lightning.for_pytorch_lightning),
    ]:
        (point,) = entry_points(group=group, name="slurmddp")
        assert point.load() is factory
