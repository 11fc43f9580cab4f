"""What slurmddp looks at before a training, on NVIDIA's real library: facts, preflight, and the checks of doctor.

python benchmarks/gpu_health.py [--cpu]
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from gpu_device import FAILED, Bench, Line, print_part
from gpu_ranks import environment_of_rank, run_rank
from rows import Row, in_turn, seconds

from slurmddp.runs.layout import RunDir
from slurmddp.runtime.health.facts import Facts, list_uuids, select_visible
from slurmddp.runtime.health.preflight import Preflight
from slurmddp.runtime.launch.rank import read_rank

ROUNDS = 9


def lines(bench: Bench) -> Iterator[Line]:
    rank = read_rank(os.environ)

    def look() -> None:
        preflight = Preflight(rank, [__file__], os.environ)
        error = preflight.judge([preflight.facts])
        if error:
            raise error

    first_ms = seconds(look) * 1000
    measures = {"preflight": lambda: seconds(look) * 1000, "NVML": lambda: seconds(list_gpus) * 1000}
    taken = in_turn(measures, ROUNDS)
    context_ms = seconds(lambda: torch.zeros(1, device=bench.device)) * 1000 if bench.on_gpu else None
    context = "needs a GPU" if context_ms is None else (context_ms,)
    yield Row(name="preflight: the first look of a rank", unit="ms", ours=(first_ms,), peers={"CUDA context": context})
    yield Row(name="preflight: a further look", unit="ms", ours=taken["preflight"], peers={"NVML": taken["NVML"]})
    yield from facts(Preflight(rank, [__file__], os.environ).facts)
    yield from checks(bench)


def list_gpus() -> list[str]:
    return select_visible(list_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def facts(found: Facts) -> Iterator[Line]:
    """Yield what was found, and whether torch has the same GPUs in the same order."""
    if found.failure:
        yield f"{FAILED}: no facts: {found.failure}"
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    yield f"  facts: {versions}; {len(found.cpus)} CPUs; /dev/shm {found.shm_mb} MB; GPUs {found.gpus or 'none'}"
    properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    uuids = [str(each.uuid) for each in properties]
    same = len(uuids) == len(found.gpus) and all(a.endswith(b) for a, b in zip(found.gpus, uuids, strict=True))
    yield f"  torch has the same GPUs: {len(uuids)}" if same else f"{FAILED}: torch has {uuids}, NVML {found.gpus}"


def checks(bench: Bench) -> Iterator[Line]:
    """Yield the findings of `doctor --in-job` in a job of one rank, and how long all of it took."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(Path(folder))
        words = ["-m", "slurmddp.worker", "-m", "slurmddp.runtime.health.check"]
        took_s = seconds(lambda: run_rank(words, environment_of_rank(run, on_gpu=bench.on_gpu)))
        report = json.loads(run.findings.read_text())
    name = "checks of doctor, from the start of the process to its end"
    yield Row(name=name, unit="s", ours=(took_s,), peers={})
    if not report["complete"]:
        yield f"{FAILED}: the checks did not come to their end"
    for finding in report["findings"]:
        begin = f"{FAILED}: " if finding["level"] == "error" else "  "
        yield f"{begin}{finding['level']} {finding['check']}: {finding['what']}"


if __name__ == "__main__":
    print_part(lines)
