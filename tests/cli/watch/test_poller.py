"""The poller goes on after files could not be read. Slurm is not asked here."""

import pytest

from slurmddp.cli.watch.poller import Poller
from slurmddp.monitoring import status


class OverError(Exception):
    """Ends the loop of the thread."""


def test_an_unreadable_folder_is_reported_and_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def gone(*_):
        raise PermissionError(13, "Permission denied", "jobs")

    def wait(_):
        raise OverError

    monkeypatch.setattr(status, "query_jobs", gone)
    poller = Poller(("17",), "jobs", {}, lambda: None)
    monkeypatch.setattr(poller._requested, "wait", wait)
    with pytest.raises(OverError):
        poller._work()
    assert "Permission denied" in poller.message and not poller.asking
