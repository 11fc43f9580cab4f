"""What lies in a run's folder, torn and wrong things among it."""

import json

import pytest

from slurmddp.report.collect import read_spec, read_submissions
from slurmddp.runs.layout import RunDir


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def test_submissions_are_read_also_with_less_in_them(run):
    lines = [
        {"job": "7", "time": "2026-11-21T23:47:59+00:00", "commit": "abc", "dirty": True, "directory": "/w"},
        {"job": "8", "time": 17, "commit": None, "dirty": "yes"},
        {"job": "nine"},
    ]
    run.submissions.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"job": "10", "ti')
    first, second = read_submissions(run)
    assert (first.time, first.commit, first.dirty) == (1795304879.0, "abc", True)
    assert (second.job, second.time, second.commit, second.dirty) == ("8", None, "", None)


@pytest.mark.parametrize("content", [b"nodes = ", b"\xff", None])
def test_a_specification_that_cannot_be_read_is_none(run, content):
    if content is not None:
        run.spec.write_bytes(content)
    assert read_spec(run) == {}
