"""A machine behind a real sshd on loopback, and the laptop that knows it."""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

from command_line import SLURMDDP
from polling import until

HOST = "cluster"
TRAIN = """
import pathlib, sys
print("words", [word.encode("utf-8", "surrogateescape").hex() for word in sys.argv[1:]])
print("files", sorted(str(path) for path in pathlib.Path(__file__).parent.rglob("*.txt")))
"""


class Cluster(NamedTuple):
    """The machine that is HOST on the laptop."""

    folder: Path
    port: int
    laptop: Path
    environ: dict[str, str]
    """Of the laptop: its ssh knows HOST, and it has no Slurm."""

    @property
    def home(self):
        return self.folder / "home"

    @property
    def project(self):
        return self.home / "slurmddp" / "project"

    def ssh_config(self, name=HOST, **options):
        """Add a machine to the file that stands for ~/.ssh/config."""
        given = {"HostName": "127.0.0.1", "Port": self.port, "IdentityFile": self.folder / "key"} | options
        given = {"UserKnownHostsFile": self.laptop / "known", "IdentitiesOnly": "yes", "BatchMode": "yes"} | given
        with (self.laptop / "ssh_config").open("a") as file:
            file.write(f"Host {name}\n" + "".join(f"  {key} {value}\n" for key, value in given.items()))

    def command(self, *words, host=HOST):
        return [SLURMDDP, "--host", host, *words]

    def run(self, *words, cwd, status=0, host=HOST, **environ):
        """Run slurmddp on the laptop, with a host if there is one; return what it printed."""
        command = self.command(*words, host=host) if host else [SLURMDDP, *words]
        done = subprocess.run(
            command, cwd=cwd, env=self.environ | environ, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="surrogateescape", timeout=120, check=False,
        )  # fmt: skip
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done

    def close(self, host=HOST):
        """End the shared connection."""
        socket_folder = Path(self.environ["XDG_RUNTIME_DIR"], "slurmddp")
        for path in socket_folder.glob("*"):
            subprocess.run(["ssh", "-O", "exit", "-S", path, host], env=self.environ, capture_output=True, check=False)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_sshd(folder, port, *lines):
    """Start sshd with its own configuration; return the process when it answers."""
    (folder / "sshd_config").write_text(
        "\n".join(
            [
                *lines,  # of several lines the first counts
                f"Port {port}",
                "ListenAddress 127.0.0.1",
                f"HostKey {folder}/host_key",
                f"AuthorizedKeysFile {folder}/authorized",
                f"PidFile {folder}/sshd.pid",
                *("StrictModes no", "UsePAM no", "PermitRootLogin yes", "PasswordAuthentication no"),
                *("MaxSessions 20", "MaxStartups 100", "LogLevel ERROR"),
                "",
            ]
        )
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([shutil.which("sshd", path="/usr/sbin"), "-D", "-e", "-f", folder / "sshd_config"])

    def answers():
        assert server.poll() is None
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    until(answers, 20)
    return server


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
