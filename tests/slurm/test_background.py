"""Work in threads: the results are in the order of the items, and the first item's error comes out."""

import threading

import pytest

from slurmddp.slurm.background import at_once


def test_all_items_are_worked_on_at_once_and_keep_their_order():
    together = threading.Barrier(3, timeout=10)

    def work(item):
        together.wait()
        return 2 * item

    assert at_once(work, (1, 2, 3)) == [2, 4, 6]


def test_the_error_of_the_first_item_is_raised_when_all_have_ended():
    second, ended = threading.Event(), []

    def work(item):
        if item == "first":
            assert second.wait(10)
            raise ValueError(item)
        second.set()
        ended.append(item)
        raise KeyError(item)

    with pytest.raises(ValueError, match="first"):
        at_once(work, ("first", "second"))
    assert ended == ["second"]
