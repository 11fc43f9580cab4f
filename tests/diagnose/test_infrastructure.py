"""What kernels, drivers, NCCL, Slurm and launchers print, each alone as a whole log: told by the right cause."""

import io
import tomllib
from pathlib import Path

import pytest

from slurmddp.diagnose.output_files import diagnose_output

PRINTED = tomllib.loads((Path(__file__).parent / "fixtures" / "printed.toml").read_text())


@pytest.mark.parametrize(
    ("cause", "text"),
    [(cause, text) for cause, texts in PRINTED.items() for text in texts.splitlines()],
)
def test_a_line_of_the_infrastructure_is_told_by_its_cause(cause, text):
    found = diagnose_output(["-"], io.BytesIO(text.replace("\\n", "\n").replace("\\t", "\t").encode() + b"\n"))
    assert found.cause == cause, found.what


def test_an_abort_that_follows_is_not_the_cause_and_a_signal_does_not_hide_one():
    for text, cause in (
        (
            "terminate called after throwing an instance of 'c10::Error'\n  what():  boom\nAborted (core dumped)\n",
            "last-words",
        ),
        ("Out of memory: Killed process 253 (python3) total-vm:53kB\nKilled\n", "host-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory.\n] exits with return code = -6\n", "gpu-memory"),
        ("[launch.py:320:sigkill_handler] ['/opt/python', '-u', 't.py'] exits with return code = 1\n", "unknown"),
        ("(raylet) (1) the process was killed by SIGKILL by OOM killer due to high memory usage.\n", "unknown"),
    ):
        assert diagnose_output(["-"], io.BytesIO(text.encode())).cause == cause, text


def test_a_process_that_lost_its_peer_says_so_and_accuses_nobody():
    text = b"n1:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<57557>\n"
    found = diagnose_output(["-"], io.BytesIO(text))
    assert (found.cause, found.rank, "lost its peer" in found.what) == ("unknown", None, True)


def test_evidence_of_a_long_line_is_what_was_matched():
    text = f"[launch.py:320:sigkill_handler] ['/opt/python', {'x' * 900}] exits with return code = -9\n"
    found = diagnose_output(["-"], io.BytesIO(text.encode()))
    assert found.evidence[0].text.endswith("return code = -9") and len(found.evidence[0].text) <= 300
