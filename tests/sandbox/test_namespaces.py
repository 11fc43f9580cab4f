import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp.sandbox import programs
from slurmddp.sandbox.state_directory import Process


def test_an_ordinary_user_gets_a_user_namespace_and_root_none():
    assert "--user" not in programs.unshare(rootless=False)
    assert "--map-auto" in programs.unshare(rootless=True)


def test_a_client_keeps_its_own_numbering_of_processes():
    options = programs.nsenter_options(Process(7, 9), rootless=True)
    assert options[:2] == ["--target", "7"]
    assert "--preserve-credentials" in options
    assert "--pid" not in options


def test_the_node_script_is_shell():
    assert subprocess.run(["sh", "-n", "-c", programs.NODE_SCRIPT], check=False).returncode == 0


def test_a_client_program_is_python_whatever_its_paths_hold():
    enter = ["/usr/bin/nsenter", "--target", "1"]
    text = programs.client_program(Path("/s/python"), "/o'p\"t/sbatch", enter, Process(1, 2), Path("/s/é\n.conf"))
    compile(text, "shim", "exec")
    assert text.startswith("#!/s/python -IS\n")


@pytest.fixture
def client(tmp_path):
    """Return a function that makes a client program which enters nothing and runs `program`."""

    def make(program, target):
        path = tmp_path / "client"
        (tmp_path / "python").symlink_to(Path(sys.executable).resolve())
        path.write_text(
            programs.client_program(tmp_path / "python", program, ["/usr/bin/env"], target, Path("/s.conf"))
        )
        path.chmod(0o755)
        return path

    return make


def test_a_client_takes_every_signal_as_the_real_program_does(client):
    shown = subprocess.run(
        [client("/bin/cat", Process.current()), "/proc/self/status"], capture_output=True, text=True, check=True
    )
    ignored = int(re.search(r"SigIgn:\s*(\w+)", shown.stdout)[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_a_client_hands_on_its_environment_and_names_its_cluster(client, tmp_path):
    given = {"LANG": "C", "SLURM_CONF": "/another", "A.B": "1", "PATH": "/usr/bin"}
    path = client("/usr/bin/env", Process.current())
    shown = subprocess.run([path], env=given, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert sorted(shown.stdout.splitlines()) == ["A.B=1", "LANG=C", "PATH=/usr/bin", "SLURM_CONF=/s.conf"]


def test_a_client_of_a_sandbox_that_is_down_says_so(client):
    current = Process.current()
    path = client("/bin/true", Process(current.pid, current.start - 1))
    result = subprocess.run([path], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "true: error: the sandbox is down; start it with: slurmddp sandbox up\n"
