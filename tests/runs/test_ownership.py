"""Who may write a run's folder."""

import pytest

from slurmddp import exit_codes
from slurmddp.errors import FencedError
from slurmddp.runs.ownership import Ownership, ownership_of


def test_the_attempt_that_the_file_names_may_write(tmp_path):
    (tmp_path / "owner").write_text("main 17 0.1\n")
    owner = ownership_of(tmp_path / "owner", {"SLURMDDP_OWNER": "main 17 0.1"})
    owner.check()


@pytest.mark.parametrize("line", ["main 18 0.0\n", "main 17 0.12\n", "main 17 1.1\n", "other 17 0.1\n"])
def test_any_other_line_fences_and_is_named(tmp_path, line):
    (tmp_path / "owner").write_text(line)
    with pytest.raises(FencedError, match=f"^this attempt \\(main 17 0.1\\) .* names {line.strip()}; ") as caught:
        Ownership(tmp_path / "owner", "main 17 0.1").check()
    assert caught.value.exit_status == exit_codes.FENCED


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_a_file_that_is_missing_or_empty_fences(tmp_path, content):
    if content is not None:
        (tmp_path / "owner").write_bytes(content)
    with pytest.raises(FencedError, match="names no attempt; "):
        Ownership(tmp_path / "owner", "main 17 0.1").check()


def test_a_file_of_any_bytes_fences(tmp_path):
    (tmp_path / "owner").write_bytes(b"\xff\x00main 17 0.1")
    with pytest.raises(FencedError):
        Ownership(tmp_path / "owner", "main 17 0.1").check()


def test_the_file_is_read_anew_each_time(tmp_path):
    owner = Ownership(tmp_path / "owner", "main 17 0.1")
    (tmp_path / "owner").write_text("main 17 0.1\n")
    owner.check()
    (tmp_path / "next").write_text("main 17 1.0\n")
    (tmp_path / "next").replace(tmp_path / "owner")
    with pytest.raises(FencedError):
        owner.check()


@pytest.mark.parametrize("environment", [{}, {"SLURMDDP_OWNER": ""}])
def test_nobody_fences_where_no_owner_is_named(tmp_path, environment):
    assert ownership_of(tmp_path / "owner", environment) is None
