"""The server that forks the tests' processes."""

import contextlib
import os
import signal

import pytest
from preload import Preloaded, Server, clean_environment


def test_a_server_that_something_has_killed_is_started_again(tmp_path):
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1], 'torch' in sys.modules)")
    words = [str(tmp_path / "program.py"), "word"]
    with contextlib.closing(Server(tmp_path)) as server:
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        with pytest.warns(UserWarning, match="ended with status -9"):
            started = Preloaded(server, words, clean_environment(), tmp_path, None)
        assert started.communicate(60) == ["word True\n", ""]
