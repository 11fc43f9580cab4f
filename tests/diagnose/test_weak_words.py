"""Words that accuse only where a program ended: warnings, errors that were logged; and exceptions that wrap another."""

import io

import pytest

from slurmddp.diagnose.evidence import read_log_evidence
from slurmddp.diagnose.formatting import format_diagnosis
from slurmddp.diagnose.output_files import diagnose_output

from .test_rules import HEALTHY

STEPS = "".join(f"step {step}: loss {3 - step / 10:.3f}\n" for step in range(6))
FRAME = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    main()\n'
LINK = "\nThe above exception was the direct cause of the following exception:\n\n"
P2P = "n1:24:24 [0] transport/p2p.cc:272 NCCL WARN Cuda mem import failed\n"
BOOTSTRAP = "n1:39:40 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<4> failed : Refused\n"
SOCKET = (
    "[W socket.cpp:663] The client socket failed to connect to [localhost]:4 (errno: 101 - Network is unreachable)\n"
)
PORT = "n1:1:2 [0] p2p_plugin.c:141 NCCL WARN NET/IB : Got async event : port error\n"
COMPLETION = "n2:984:1357 [4] NCCL WARN NET/IB : Got completion from peer 10.0.0.7<4> with {} opcode=1 len=0\n"


def tell(text: str) -> str:
    """The first line of what is said of a log."""
    return format_diagnosis(diagnose_output(["-"], io.BytesIO(text.encode())))[0].removeprefix("standard input: ")


@pytest.mark.parametrize("line", HEALTHY)
def test_no_line_of_a_run_that_went_well_is_its_cause(line):
    for text in (f"{line}\n", f"{STEPS}{line}\n", f"{line}\n{STEPS}"):
        assert tell(text).endswith("[unknown]"), tell(text)


@pytest.mark.parametrize(
    "text",
    [
        P2P,
        P2P + STEPS,
        STEPS + P2P,
        BOOTSTRAP + STEPS,
        SOCKET + STEPS,
        PORT + STEPS,
        "step 1 loss: nan\nstep 2 loss: 2.1\nstep 3 loss: 2.0\n",
        "/usr/bin/ld: cannot find -lcuda\ncollect2: error: ld returned 1 exit status\n" + STEPS,
        "ERROR: the image of step 3 was not uploaded\n" + STEPS,
        "CRITICAL: the disk is nearly full\n" + STEPS,
        "1: E tensorflow/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device\n"
        + STEPS,
        "ValueError: bad sample 12\n" + STEPS,
        STEPS + "[worker] got ValueError: bad sample 12\n" + STEPS,
    ],
)
def test_what_a_program_outlives_accuses_nothing_and_is_shown(text):
    found = diagnose_output(["-"], io.BytesIO(text.encode()))
    assert (found.cause, bool(found.evidence)) == ("unknown", True), found.what


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (P2P + "n1:24:24 [0] NCCL INFO init.cc:1372 -> 1\n", "Cuda mem import failed"),
        (P2P + "srun: error: n1: task 0: Exited with exit code 1\n", "Cuda mem import failed"),
        (PORT, "port error"),
        (SOCKET, "no route"),
        (STEPS + "ERROR: the parameter server has gone away\n", "gone away"),
        (STEPS + "step 7 loss: nan\n", "loss is nan"),
        ("mlflow.exceptions.RestException:\nINVALID_PARAMETER_VALUE: of a\n", "INVALID_PARAMETER_VALUE"),
    ],
)
def test_they_are_the_cause_where_the_program_ended(text, words):
    assert words in tell(text)


def test_they_are_the_cause_in_a_job_that_failed_and_where_another_file_shows_the_end(tmp_path):
    output, errors = tmp_path / "17.out", tmp_path / "17.err"
    output.write_text(P2P + STEPS)
    errors.write_text("srun: error: n1: task 0: Exited with exit code 1\n")
    assert [seen.rule.key for seen in read_log_evidence([output]).observations] == ["nccl-failed"]
    assert read_log_evidence([output], has_failed=False).observations == ()
    both = read_log_evidence([output, errors], has_failed=False).observations
    assert "nccl-failed" in [seen.rule.key for seen in both]


@pytest.mark.parametrize(
    "text",
    [
        "salloc: Job 17 has exceeded its time limit and its allocation has been revoked.\n",
        "=>> PBS: job killed: walltime 3633 exceeded limit 3600\n",
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n",
        "job 123 exceeded hard wallclock time - initiate terminate method\n",
        (
            "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 ***\n"
            "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***\n"
        ),
        (
            "srun: error: Job has been cancelled\nsrun: Force Terminated job 17\n"
            "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***\n"
        ),
    ],
)
def test_a_time_limit_says_more_than_that_the_job_was_cancelled(text):
    assert tell(text) == "the time limit was reached [time-limit]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            (
                f"{FRAME}mine.OddError: column 7 is odd\n{LINK}{FRAME}"
                "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset\n"
            ),
            "OddError: column 7 is odd",
        ),
        (
            (
                "column names\nbecause column names don't match\n"
                '  File "/opt/datasets/builder.py", line 1958, in _prepare_split_single\n    raise x\n'
                "datasets.builder.DatasetGenerationError: An error occurred while generating the dataset\n"
            ),
            "different columns",
        ),
        (
            (
                f"{FRAME}TypeError: got 'd'\n{LINK}{FRAME}"
                "hydra.errors.InstantiationException: Error in call to target 'my.Model'\n"
            ),
            "TypeError: got 'd'",
        ),
        (
            (
                f"{FRAME}RuntimeError: Failed to import transformers.models.llama because of the following error "
                "(look up to see its traceback):\ncannot import name 'x' from 'y'\n"
            ),
            "the import of transformers.models.llama failed: cannot import name 'x' from 'y'",
        ),
        (
            f"{FRAME}lightning.MisconfigurationException: You requested gpu: [0]\n But your machine only has: []\n",
            "You requested gpu: [0] But your machine only has: []",
        ),
    ],
)
def test_an_exception_that_wraps_another_names_its_root(text, words):
    assert words in tell(text)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("error 4,", "local protection error"),
        ("status=9", "remote invalid request"),
        ("status=10", "remote access error"),
        ("status=11", "remote operation error"),
        ("status=12", "retry exceeded"),
        ("status=IBV_WC_RETRY_EXC_ERR(12)", "retry exceeded"),
        ("status=13", "receiver not ready"),
        ("status=5", "had failed before"),
        ("status=2", "completion status 2"),
    ],
)
def test_a_completion_of_infiniband_is_told_by_its_status(status, words):
    flushed = COMPLETION.format("status=5")
    assert words in tell(COMPLETION.format(status))
    assert words in tell(flushed + COMPLETION.format(status))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RuntimeError: [enforce fail at device.cc:127] rp != nullptr. Unable to find address for: dgx-1.ai\n", "host"),
        ("RuntimeError: Unable to resolve hostname to a (local) address\n", "host name"),
        (
            "RuntimeError: [enforce fail at device.cc:83] ifa != nullptr. Unable to find address for: bond1\n",
            "interface",
        ),
        ("[ERROR] URL https://x/v2/a returned error code: 429 Too Many Requests\n", "429 Too Many Requests"),
        ("[ERROR] URL https://x/v2/a returned error code: 401 Unauthorized\n", "401 Unauthorized"),
        ("requests: unexpected status code: 503 Service Unavailable\n", "service-busy"),
        ("unexpected status from HEAD request to https://x/v2/a/manifests/b: 403 Forbidden\n", "403 Forbidden"),
    ],
)
def test_a_name_is_no_interface_and_a_registry_says_its_status(text, words):
    assert words in tell("slurmstepd: error: pyxis: failed to import docker image\n" * ("URL" in text) + text)
