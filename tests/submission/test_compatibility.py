"""Whether a run can take another job, by the record of the one before."""

import os
import re
from pathlib import Path

import pytest

from slurmddp.config.resolve import resolve
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.submission.compatibility import find_change


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.touch, "spec.toml is empty"),
        (os.mkfifo, "spec.toml is not a regular file"),
        (lambda path: path.write_bytes(b"\xff"), "spec.toml, line 1: not UTF-8 text"),
    ],
)
def test_a_damaged_record_is_named_with_its_run(damage, said, tmp_path):
    run = RunDir(tmp_path / "dmg")
    run.create()
    damage(run.spec)
    with pytest.raises(UsageError, match=f"{re.escape(said)}; it is the record of run dmg: choose another --name$"):
        find_change(run, resolve(options={}, words=("x.py",), job_file=None, environ={}, worker={}, configuration=()))
