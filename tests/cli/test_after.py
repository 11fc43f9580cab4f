"""A job behind others: what sbatch is told."""

import json
import re

import pytest

from slurmddp.cli import after
from slurmddp.errors import UsageError
from slurmddp.rundir import RunDir


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    """Be where the run `first` has had the jobs 5 and 7."""
    monkeypatch.chdir(tmp_path)
    made = RunDir.named("jobs", "first")
    made.create()
    made.submissions.write_text("".join(f"{json.dumps({'job': job})}\n" for job in ("5", "7")))


@pytest.mark.parametrize(
    ("given", "words", "words_ok", "dependency"),
    [
        (None, ("3",), (), "afterany:3"),
        (None, ("first",), ("3_1",), "afterany:7,afterok:3_1"),
        ("singleton", (), ("first",), "singleton,afterok:7"),
        ("afterok:1?afterok:2", (), (), "afterok:1?afterok:2"),
    ],
)
def test_jobs_and_runs_are_told_by_their_ids(given, words, words_ok, dependency):
    assert after.behind({"dependency": given}, words, words_ok)["dependency"] == dependency


@pytest.mark.parametrize(
    ("given", "word", "message"),
    [(None, "fist", "did you mean first?"), ("afterok:1?afterok:2", "3", "write all of it in --dependency")],
)
def test_what_cannot_be_waited_for_is_refused(given, word, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        after.behind({"dependency": given}, (word,), ())
