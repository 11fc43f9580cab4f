"""What the reports of a rank to the supervisor cost a training step: the same steps with them and without.

    python benchmarks/beats.py

A small DDP training on the CPU, blocks of steps of some seconds each, in the same processes; the thread of the reports
looks and sends in one block and not in the other, the first of each two in turn of the one kind and of the other.
"""

import socket
import sys
import threading
import time

from blocks import in_ms, run_ranks, say_block
from rows import Row, print_rows
from watching import Training

import slurmddp
from slurmddp.watchdog import beats, rank

PAIRS, STEPS = 30, 400


class Switched(rank.Sampler):
    """Looks while it is on; else there is nothing to send."""

    is_on = False

    def sample(self) -> None:
        """Look now. Raises RuntimeError while it is off."""
        if not self.is_on:
            raise RuntimeError
        super().sample()


def measure() -> None:
    """Say the seconds of each two blocks: of a step with the reports, and without."""
    rank.Sampler = Switched  # type: ignore[misc]
    supervisor = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    supervisor.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{supervisor.getsockname()[1]}"
    with slurmddp.init("cpu") as ddp:
        training = Training()
        beat = beats.Beat(ddp.rank, ddp.world_size, "0", "n1", 1, every_s=2.0)
        arguments = (beat, rank.Steps(), address, "secret")
        threading.Thread(target=rank.send_beats, args=arguments, daemon=True).start()
        for pair in range(PAIRS + 1):
            took_s = {}
            for is_on in (pair % 2 == 0, pair % 2 == 1):
                Switched.is_on = is_on
                begin = time.perf_counter()
                training.step_s(range(STEPS))
                took_s[is_on] = (time.perf_counter() - begin) / STEPS
            say_block(ddp, took_s[True], took_s[False])


def rows() -> list[Row]:
    ours, without = map(in_ms, run_ranks(__file__))
    peers, wanted = {"no reports": without}, "at most 1.005 of no reports"
    return [
        Row(name="a step with reports to the supervisor, 2 ranks", unit="ms", ours=ours, peers=peers, wanted=wanted)
    ]


if __name__ == "__main__":
    measure() if sys.argv[1:2] == ["rank"] else print_rows(rows())
