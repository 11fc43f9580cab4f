"""benchmarks/gpu.py says what it lacks, and --cpu tries a part where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_without_a_gpu_it_is_one_line():
    done = run()
    assert done.returncode == 3
    assert done.stdout.startswith("no GPU: torch ") and done.stdout.count("\n") == 1
    assert done.stdout.endswith("; --cpu tries the parts that can run without one\n")


def test_the_flight_recorder_is_tried_on_the_cpu():
    done = run("--cpu", "flight")
    assert done.returncode == 0, done.stderr
    assert "read: all_reduce of [[1]], all_reduce of [[2]], all_reduce of [[3]]" in done.stdout
