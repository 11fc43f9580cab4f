import subprocess

import pytest

from slurmddp.errors import ClusterError
from slurmddp.sandbox import node, programs


def test_a_process_without_pipes_is_refused():
    with subprocess.Popen(["true"]) as process, pytest.raises(ValueError, match="without pipes"):
        node._pipes(process)


def test_a_command_that_fails_is_an_error_in_its_own_words():
    with pytest.raises(ClusterError, match="env -C /nowhere true: .*No such file"):
        programs.run_command("env", "-C", "/nowhere", "true")
