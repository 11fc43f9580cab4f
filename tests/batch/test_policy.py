"""Which nodes of the allocation the next attempt gets; the other decisions are in test_supervisor.py."""

import pytest

from slurmddp.batch.policy import choose_nodes


@pytest.mark.parametrize(
    ("gone", "needed", "chosen"),
    [
        (set(), 2, ("n1", "n2")),
        ({"n2"}, 2, ("n1", "n3")),
        ({"n1"}, 2, ("n2", "n3")),
        ({"n1", "n2"}, 2, ("n3", "n4")),
        ({"n3"}, 3, ("n1", "n2", "n4")),
        ({"n9"}, 4, ("n1", "n2", "n3", "n4")),
        ({"n1", "n2", "n3"}, 2, ()),
    ],
)
def test_the_first_nodes_that_are_not_gone_are_used_or_none(gone, needed, chosen):
    assert choose_nodes(("n1", "n2", "n3", "n4"), gone, needed) == chosen
