"""Partitions of any shape, as people write them."""

import pytest

from slurmddp.errors import UsageError
from slurmddp.sandbox import Shape


def test_a_shape_is_read_with_all_its_parts():
    text = "big:nodes=2,cpus=40,gpus=a100:4+h100:4,memory=64000,MaxTime=1:00:00,AllowAccounts=a,b"
    assert Shape.parse(text) == Shape(
        name="big",
        nodes=2,
        cpus=40,
        memory=64000,
        gpus=(("a100", 4), ("h100", 4)),
        options=(("MaxTime", "1:00:00"), ("AllowAccounts", "a,b")),
    )
    assert Shape.parse("p") == Shape(name="p")
    assert Shape.parse("p:gpus=2").gpus == (("", 2),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "use NAME:nodes=1"),
        ("DEFAULT", "use NAME:nodes=1"),
        ("a b:cpus=1", "use NAME:nodes=1"),
        ("p:cpus", "use NAME:nodes=1"),
        ("p:sockets=2", "use NAME:nodes=1"),
        ("p:MaxTime=1 #", "use NAME:nodes=1"),
        ("p:MaxTime=1\nx", "use NAME:nodes=1"),
        ("p:cpus=0", "cpus='0': allowed are 1 to 4096"),
        ("p:nodes=201", "nodes='201': allowed are 0 to 200"),
        ("p:gpus=x", "gpus='x' is not a count"),
        ("p:gpus=a:100+b:100", "gpus='200': allowed are 0 to 128"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_what_can(text, said):
    with pytest.raises(UsageError, match=f"^--partition .*: {said}"):
        Shape.parse(text)
