"""The start of a sandbox ends by itself, also when something in it waits for ever."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from slurmddp.errors import ClusterError
from slurmddp.sandbox import cluster


def test_a_start_that_takes_too_long_is_ended_and_its_log_is_shown(monkeypatch):
    """A process that says nothing stands for the sandbox's first one."""
    process = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
    monkeypatch.setattr(cluster, "_UP_DEADLINE_S", 0.1)
    monkeypatch.setattr(cluster, "_write_files", lambda *_: None)
    monkeypatch.setattr(cluster, "_start_supervisor", lambda _: (process, os.open(os.devnull, os.O_RDONLY)))
    files = SimpleNamespace(
        supervisor=lambda: process if process.poll() is None else None, last_log_lines=lambda _: "munged waits"
    )
    with pytest.raises(ClusterError, match="the sandbox did not start: munged waits"):
        cluster._start(SimpleNamespace(), files, print, die_with_parent=True)
    assert process.poll() is not None
