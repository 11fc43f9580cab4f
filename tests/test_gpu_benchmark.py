"""benchmarks/gpu.py says what it lacks, and --cpu tries a part where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PROGRAM = BENCHMARKS / "gpu.py"


def run(*words: str, program: Path = PROGRAM) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, str(program), *words],
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


def test_without_a_gpu_a_part_says_so_too():
    done = run(program=BENCHMARKS / "gpu_survivors.py")
    assert done.returncode == 3
    assert done.stdout.startswith("no GPU: torch ") and done.stdout.endswith("; --cpu tries it without one\n")


def test_the_flight_recorder_is_tried_on_the_cpu():
    done = run("--cpu", "flight")
    assert done.returncode == 0, done.stderr
    assert "read: all_reduce of [[1]], all_reduce of [[2]], all_reduce of [[3]]" in done.stdout
