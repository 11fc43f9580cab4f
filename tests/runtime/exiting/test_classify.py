"""What an exception that ends a rank means for another attempt."""

import errno

import pytest
import torch.distributed as dist

from slurmddp.errors import PeerError, RankError, UsageError
from slurmddp.runtime.exiting.classify import exit_status, is_of_launcher, judge


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        PeerError("rank 3 left"),
        dist.DistNetworkError("lost"),
        dist.DistStoreError("wait timeout after 1000ms"),
        ConnectionResetError("reset"),
        BrokenPipeError(),
        TimeoutError("late"),
        OSError(errno.ESTALE, "Stale file handle"),
        OSError(errno.EADDRINUSE, "Address already in use"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
        RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:39"),
        RuntimeError("Timed out waiting 60000ms for recv operation to complete"),
        RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        dist.DistBackendError("NCCL error: remote process exited or there was a network error"),
        caused(ValueError("could not load"), ConnectionResetError()),
    ],
)
def test_a_lost_peer_port_device_or_loader_and_a_full_disk_can_be_cured_by_another_attempt(error):
    assert judge(error).status == 76


@pytest.mark.parametrize(
    "error",
    [
        ValueError("connection reset by peer"),
        RuntimeError("shape mismatch"),
        OSError(errno.ENOENT, "No such file"),
        RankError("rank 0 is claimed twice"),
        UsageError("--lr"),
        KeyboardInterrupt(),
        SystemExit(3),
        SystemExit("no data"),
    ],
)
def test_a_mistake_would_be_repeated(error):
    assert judge(error).status == 77


def test_the_reason_of_a_lost_peer_is_what_gloo_says():
    lost = RuntimeError(
        "[/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:39042: Connection "
        "reset by peer. This is typically caused by a remote worker hanging or bugs in the application."
    )
    assert judge(lost) == (76, "RuntimeError: Read error [10.0.0.2]:39042: Connection reset by peer.")


def test_the_reason_is_one_line():
    assert judge(ValueError("a\nb\x1b[2J")).reason == "ValueError: a b?[2J"
    assert judge(RankError("twice")).reason == "twice"
    assert judge(SystemExit(3)).reason == "exit status 3"
    assert len(judge(ValueError("x" * 999)).reason) == 300


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), (256, 0), (-1, 255), ("text", 1), (True, 1)])
def test_exit_status_is_pythons(code, status):
    assert exit_status(SystemExit(code)) == status
    assert exit_status(ValueError(code)) == 1


def test_lightnings_exception_at_a_notice_is_no_good_end():
    """Its code is None, though it means 143: a training that was preempted would be taken for complete."""
    stop = type("SIGTERMException", (SystemExit,), {})()
    assert exit_status(stop) == 143
    assert judge(stop) == (77, "exit status 143")


def test_leaving_with_zero_is_done():
    assert judge(SystemExit(0)) == (0, "done")


def test_an_exception_of_a_launcher_that_the_program_has_called_is_known():
    code = "def main():\n    raise OSError(98, 'Address already in use')\n"
    for path, is_of_one in ((f"/env/torch/distributed/{name}", name == "run.py") for name in ("run.py", "rpc.py")):
        names = {}
        exec(compile(code, path, "exec"), names)  # noqa: S102 - of this test
        with pytest.raises(OSError, match="in use") as raised:
            names["main"]()
        assert is_of_launcher(raised.value) == is_of_one
