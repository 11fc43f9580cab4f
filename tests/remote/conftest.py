"""A machine behind a real sshd on loopback, in front of the sandbox: a home, a configuration and keys of its own."""

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from far_machine import TRAIN, Cluster, free_port, make_key, start_sshd

PACKAGES = next(Path(sys.executable).parent.parent.glob("lib/python3*/site-packages"))


@pytest.fixture(scope="session")
def machine(sandbox, tmp_path_factory):
    """Return the folder of a machine behind sshd, and its port."""
    for program in ("sshd", "rsync"):
        if not shutil.which(program, path="/usr/bin:/usr/sbin"):
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("machine")
    home, packages = folder / "home", folder / "packages"
    home.mkdir()
    packages.mkdir()
    for path in PACKAGES.iterdir():  # what pip would install there; slurmddp is not among it
        if "slurmddp" not in path.name:
            (packages / path.name).symlink_to(path)
    for name in ("key", "host_key", "stranger"):
        make_key(folder / name)
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    variables = sandbox.environment()
    variables["PATH"] += ":/usr/bin:/bin"
    variables |= {
        "OMP_NUM_THREADS": "1",
        "PIP_NO_DEPS": "1",
        "PYTHONPATH": str(packages),
        "XDG_STATE_HOME": f"{home}/state",
    }
    profile = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in variables.items())
    (home / ".bash_profile").write_text(f"{profile}echo Welcome to the cluster\necho and to its rules >&2\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3.14").symlink_to(sys.executable)
    port = free_port()
    inside = 'ForceCommand cd && exec bash -c "$SSH_ORIGINAL_COMMAND"'
    server = start_sshd(folder, port, inside, f"SetEnv HOME={home} PATH={folder}/bin:/usr/bin:/bin")
    yield folder, port
    server.terminate()
    server.wait()


@pytest.fixture
def bare_cluster(machine, tmp_path):
    """Return the machine, and a laptop that has no Slurm, and no connection yet."""
    folder, port = machine
    laptop = tmp_path / "laptop"
    (laptop / "bin").mkdir(parents=True)
    runtime = tempfile.mkdtemp(prefix="r-")  # the path of a socket has 108 bytes at most
    program = laptop / "bin" / "ssh"  # reads a file of its own: ssh finds ~ without $HOME
    program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {laptop}/ssh_config "$@"\n')
    program.chmod(0o755)
    environ = {"HOME": str(laptop), "PATH": f"{laptop}/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR": runtime}
    cluster = Cluster(folder, port, laptop, environ | {"LANG": "C.UTF-8"})
    known = (folder / "host_key.pub").read_text()
    (laptop / "known").write_text(f"[127.0.0.1]:{port} {known}")
    cluster.ssh_config()
    yield cluster
    cluster.close()
    shutil.rmtree(runtime)


@pytest.fixture
def cluster(bare_cluster, tmp_path):
    """Return the machine with slurmddp installed."""
    bare_cluster.run("setup", "--yes", cwd=tmp_path)
    yield bare_cluster
    shutil.rmtree(bare_cluster.home / "slurmddp" / "project", ignore_errors=True)


@pytest.fixture
def project(tmp_path):
    """Return a git work tree on the laptop with a script and a file that is ignored."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / ".gitignore").write_text("data/\n")
    (folder / "data").mkdir()
    (folder / "data" / "big").write_text("stays here")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder
