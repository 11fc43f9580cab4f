"""A finding is a line for people, and together they are an exit status."""

import pytest

from slurmddp.runs.findings import Finding, worst


def error(status: int) -> Finding:
    return Finding(check="x", level="error", what="broken", status=status)


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([Finding(check="x", level="warning", what="slow", status=2)], 0),
        ([error(1), error(3)], 3),
        ([error(3), error(2), error(1)], 2),
    ],
)
def test_only_errors_count_and_what_is_wrong_by_itself_comes_first(findings, status):
    assert worst(findings) == status


def test_the_line_says_where_what_why_and_what_to_type():
    found = Finding(
        check="x", level="error", what="its clock stands", why="time matters", advice="wind it", host="n2", rank=3
    )
    assert found.line == "rank 3 on n2: its clock stands; time matters; wind it"
    assert Finding(check="x", level="ok", what="all well").line == "all well"
