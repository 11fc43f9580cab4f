"""Who asks Slurm for the screen goes on whatever happens to the files. Slurm is not asked here."""

import pytest

from slurmddp.cli.watch.poller import Asker
from slurmddp.monitoring import status


class OverError(Exception):
    """Ends the thread's loop."""


def test_files_that_cannot_be_read_are_told_and_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def gone(*_):
        raise PermissionError(13, "Permission denied", "jobs")

    def wait(_):
        raise OverError

    monkeypatch.setattr(status, "look", gone)
    asker = Asker(("17",), "jobs", {}, lambda: None)
    monkeypatch.setattr(asker._now, "wait", wait)
    with pytest.raises(OverError):
        asker._work()
    assert "Permission denied" in asker.message and not asker.asking
