"""What lies in a run's folder, torn and wrong things among it."""

import pytest

from slurmddp.report.collect import read_spec
from slurmddp.runs.layout import RunDir


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


@pytest.mark.parametrize("content", [b"nodes = ", b"\xff", None])
def test_a_specification_that_cannot_be_read_is_none(run, content):
    if content is not None:
        run.spec.write_bytes(content)
    assert read_spec(run) == {}
