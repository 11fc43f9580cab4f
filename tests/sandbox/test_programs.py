import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from slurmddp.errors import ClusterError
from slurmddp.sandbox import programs, state_directory
from slurmddp.sandbox.state_directory import Process


def _without(monkeypatch, *missing):
    monkeypatch.setattr(programs, "find", lambda name: None if name in missing else f"/usr/bin/{name}")
    monkeypatch.setattr(programs, "find_error", lambda _: "")


@pytest.mark.parametrize(
    ("missing", "uid", "accounting", "said"),
    [
        (("slurmctld", "slurmd", "ip"), 0, False, "ip, slurmctld, slurmd; type: apt install iproute2 slurm-wlm"),
        (("newuidmap",), 1000, False, "apt install uidmap"),
        (("newuidmap", "mariadbd", "slurmdbd"), 0, False, ""),
        (("mariadbd", "mariadb-install-db", "slurmdbd"), 0, True, "apt install mariadb-server slurmdbd"),
    ],
)
def test_what_is_missing_and_needed_is_named_each_package_once(monkeypatch, missing, uid, accounting, said):
    _without(monkeypatch, *missing)
    monkeypatch.setattr(programs.os, "getuid", lambda: uid)
    with pytest.raises(ClusterError, match=f"{said}$") if said else nullcontext():
        programs.check_machine(accounting=accounting)


@pytest.mark.parametrize(
    ("uid", "refused", "advice"),
    [
        (0, "--mount", "root cannot create namespaces here"),
        (1000, "--map-root-user", "ordinary users cannot create user namespaces here"),
        (1000, "--map-auto", "usermod --add-subuids"),
    ],
)
def test_refused_namespaces_are_one_line_with_advice(monkeypatch, uid, refused, advice):
    _without(monkeypatch)
    monkeypatch.setattr(programs, "find_error", lambda words: "Not permitted" if refused in words else "")
    monkeypatch.setattr(programs.os, "getuid", lambda: uid)
    with pytest.raises(ClusterError, match=advice) as caught:
        programs.check_machine()
    assert "Not permitted" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_command_that_fails_is_an_error_in_its_own_words():
    programs.run_command("true")
    with pytest.raises(ClusterError, match="env -C /nowhere true: .*No such file"):
        programs.run_command("env", "-C", "/nowhere", "true")
    with pytest.raises(ClusterError, match="^false: it ends with status 1$"):
        programs.run_command("false")


def test_programs_of_sandboxes_are_not_the_machines_own(monkeypatch, tmp_path):
    monkeypatch.setattr(state_directory, "_PLACE", tmp_path)
    folder = state_directory.base_folder() / "other" / "bin"
    folder.mkdir(parents=True)
    (folder / "sbatch-of-sandbox").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin")
    assert programs.find("sbatch-of-sandbox") is None
    assert programs.outside_path() == ["/usr/bin"]


@pytest.mark.parametrize(("said", "version"), [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5-1", (24, 11))])
def test_the_version_is_what_slurmd_says(monkeypatch, tmp_path, said, version):
    slurmd = tmp_path / "slurmd"
    slurmd.write_text(f"#!/bin/sh\necho '{said}'\n")
    slurmd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert programs.slurm_version() == version
    slurmd.write_text("#!/bin/sh\n")
    with pytest.raises(ClusterError, match="slurmd -V says no version: ''"):
        programs.slurm_version()


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


def test_a_client_hands_on_its_environment_also_what_a_shell_would_drop_and_names_its_cluster(client, tmp_path):
    """Python sets LC_CTYPE in a C locale; the client program, which is Python, must not pass that on."""
    kept = {b"LANG": b"C", b"BASH_FUNC_hello%%": b"() {  echo hi\n}", b"A.B": b"\xff", b"X": b"a\nb", b"EMPTY": b""}
    given, command = kept | {b"SLURM_CONF": b"/another"}, [client("/usr/bin/env", Process.current()), "-0"]
    shown = subprocess.run(command, env=given, capture_output=True, check=True, cwd=tmp_path).stdout
    entries = dict(entry.split(b"=", 1) for entry in shown.split(b"\0") if entry)
    assert entries == kept | {b"SLURM_CONF": b"/s.conf"}


def test_a_client_of_a_sandbox_that_is_down_says_so(client):
    current = Process.current()
    path = client("/bin/true", Process(current.pid, current.start - 1))
    result = subprocess.run([path], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "true: error: the sandbox is down; start it with: slurmddp sandbox up\n"
