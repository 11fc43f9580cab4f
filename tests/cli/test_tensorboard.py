"""`slurmddp tensorboard`: its secret address, and its end by Ctrl-C."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from command_line import typed

COMMAND = [sys.executable, "-m", "slurmddp", "tensorboard"]


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "jobs" / "exp" / "tensorboard").mkdir(parents=True)
    (tmp_path / "jobs" / "new").mkdir()
    for name in ("exp", "new"):
        (tmp_path / "jobs" / name / "events.jsonl").touch()
    return tmp_path


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=300) as answer:  # noqa: S310 - our own address
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("words", [["exp"], []])
def test_the_address_has_a_secret_that_no_command_line_shows(runs, words):
    with subprocess.Popen(
        [*COMMAND, *words], cwd=runs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            url = server.stdout.readline().strip()
            port, secret = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{20,})/", url).groups()
            assert status_of(f"{url}data/environment") == 200
            assert status_of(f"http://127.0.0.1:{port}/") == 404
            assert status_of(f"http://127.0.0.1:{port}/data/environment") == 404
            assert secret not in Path(f"/proc/{server.pid}/cmdline").read_text()
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
            assert children == "", "no data server beside it, which would have no secret"
        finally:
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=300)
    assert server.returncode == 130
    assert f"ssh -L {port}:127.0.0.1:{port} " in said
    assert secret not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "'none' is not a job id, nor a submitted run in jobs"),
        (["new"], "run 'new' has no data for TensorBoard"),
    ],
)
def test_an_unknown_run_is_one_line(runs, words, said):
    done = typed("tensorboard", *words, cwd=runs)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {said}")


def test_a_port_in_use_and_a_missing_package_are_one_line(runs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = [*COMMAND, "exp", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(words, cwd=runs, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"Error: TensorBoard cannot be started: .*\n", done.stderr)
    (runs / "tensorboard").mkdir()
    (runs / "tensorboard" / "__init__.py").write_text("raise ModuleNotFoundError('tensorboard')\n")
    done = subprocess.run([*COMMAND, "exp"], cwd=runs, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: `slurmddp tensorboard` needs the package tensorboard; type: pip install")
