"""Messages of exceptions that go on in the lines below, and words that have a cause of their own."""

import io

import pytest

from slurmddp.diagnose.formatting import SHOWN_CHARS, format_diagnosis
from slurmddp.diagnose.output_files import diagnose_output

FRAME = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    main()\n'
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
        "unknown",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_cause_has_the_decisive_words(name):
    text, wanted = TEXTS[name]
    found = diagnose_output(["-"], io.BytesIO(text.encode()))
    first = format_diagnosis(found)[0]
    assert wanted in first
    assert len(first) < SHOWN_CHARS + 100
