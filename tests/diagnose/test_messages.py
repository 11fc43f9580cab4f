"""What programs, drivers, NCCL, Slurm and launchers print: told by the right cause, and by its decisive words.

And words that accuse only where a program ended: warnings, errors that were logged.
"""

import tomllib
from pathlib import Path

import pytest

from slurmddp.diagnose.evidence import read_log_evidence
from slurmddp.diagnose.rule_types import SHOWN_CHARS, format_diagnosis

from .test_output_files import judge
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
    return format_diagnosis(judge(text))[0].removeprefix("standard input: ")


@pytest.mark.parametrize("line", HEALTHY)
def test_no_line_of_a_run_that_went_well_is_its_cause(line):
    for text in (f"{line}\n", f"{STEPS}{line}\n", f"{line}\n{STEPS}"):
        assert judge(text).cause in ("none", "unknown"), tell(text)


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
    found = judge(text)
    assert found.cause in ("none", "unknown") and found.evidence, found.what


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


TEXTS = {
    "indented": (
        FRAME + "lightning.MisconfigurationException: \n            You requested GPUs: [0]\n"
        "            But your machine only has: []\n",
        "But your machine only has: []",
    ),
    "broken by rich": (
        (
            "╭──────────── Traceback (most recent call last) ─────────────╮\n│ train.py:9 in <module> │\n"
            "╰────────────────────────────────────────────────────────────╯\n"
            "AssertionError: Check batch related parameters. train_batch_size is not\n"
            "equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 *\n8 * 1\nbye\n"
        ),
        "64 != 4 * 8 * 1 [",
    ),
    "its end": (FRAME + f"ValueError: Tag value '{'0.85, ' * 200}' exceeded length limit of 5000\n", "limit of 5000"),
    "offline": (
        (
            "LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has \n"
            "been disabled. To enable hf.co look-ups and downloads online, set 'local_files_only' to False.\n"
        ),
        "is not in the cache",
    ),
    "a linker": ("/usr/bin/ld: cannot find -lcuda\ncollect2: error: ld returned 1 exit status\n", "finds no libcuda"),
    "a forced end": (
        (
            "srun: Force Terminated job 17\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
            "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-07-03T02:59:56 DUE TO TIME LIMIT ***\n"
        ),
        "the time limit was reached",
    ),
    "a container's driver": (
        (
            "Error response from daemon: OCI runtime create failed: nvidia-container-cli: initialization error: nvml "
            "error: driver/library version mismatch: unknown\n"
        ),
        "driver/library version mismatch",
    ),
    "a warning of NCCL": (
        (
            "n1:4300:4348 [0] net_fastsocket.cc:652 NCCL WARN Cannot get incoming CPU.\n"
            "n1:4024:4055 [0] NCCL INFO NET/FastSocket : Connected after 1000 retries.\n"
        ),
        "no failure",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_cause_has_the_decisive_words(name):
    text, wanted = TEXTS[name]
    assert wanted in tell(text) and len(tell(text)) < SHOWN_CHARS + 100


PRINTED = tomllib.loads((Path(__file__).parent / "fixtures" / "printed.toml").read_text())


@pytest.mark.parametrize(
    ("cause", "text"),
    [(cause, text) for cause, texts in PRINTED.items() for text in texts.splitlines()],
)
def test_a_line_of_the_infrastructure_is_told_by_its_cause(cause, text):
    found = judge(text.replace("\\n", "\n").replace("\\t", "\t") + "\n")
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
        assert judge(text).cause == cause, text


def test_a_process_that_lost_its_peer_says_so_and_accuses_nobody():
    text = b"n1:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<57557>\n"
    found = judge(text)
    assert (found.cause, found.rank, "lost its peer" in found.what) == ("unknown", None, True)


def test_evidence_of_a_long_line_is_what_was_matched():
    text = f"[launch.py:320:sigkill_handler] ['/opt/python', {'x' * 900}] exits with return code = -9\n"
    found = judge(text)
    assert found.evidence[0].text.endswith("return code = -9") and len(found.evidence[0].text) <= 300
