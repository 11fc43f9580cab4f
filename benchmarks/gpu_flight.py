"""torch's flight recorder with NCCL: whether a dump is written, and read by the reader of diagnose.

python benchmarks/gpu_flight.py [--cpu]
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpu_device import FAILED, Bench, Line, print_part
from gpu_ranks import ATTEMPT, JOB, PROGRAMS, environment_of_rank, run_rank
from rows import Row, seconds

from slurmddp.diagnose.flight_recorder import FlightRecord, load_dumps
from slurmddp.runs.layout import RunDir

ENTERED = 3
"""Collectives of trainings/flight.py."""


def lines(bench: Bench) -> Iterator[Line]:
    backend = bench.pick("NCCL", "gloo (NCCL needs a GPU)")
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(Path(folder))
        environment = environment_of_rank(run, on_gpu=bench.on_gpu)
        run_rank([str(PROGRAMS / "flight.py"), bench.device.type], environment)
        dump = Path(f"{run.flight_prefix(JOB, ATTEMPT)}0")
        if not dump.exists():
            yield f"{FAILED}: flight recorder, {backend}: no dump was written"
            return
        found: dict[Path, FlightRecord] = {}
        took_s = seconds(lambda: found.update(load_dumps([dump])))
        size = dump.stat().st_size
    yield Row(name=f"flight recorder, {backend}: a dump of {size} bytes is read", unit="s", ours=(took_s,), peers={})
    held = list(found.get(dump, {}).values())
    begin = "  " if len(held) == ENTERED else f"{FAILED}: {ENTERED} collectives were entered; "
    yield f"{begin}read: {', '.join(f'{kind} of {sizes}' for kind, sizes in held) or 'nothing'}"


if __name__ == "__main__":
    print_part(lines)
