"""How much time is useful (ETTR) in a training in which a rank fails ten times, with `--hang-timeout` and without.

    python benchmarks/hangs.py

2 nodes with a rank each, by fork. Five times the rank is killed, five times it stands still. Prints also how the time
was divided.
"""

import json
import sys
from functools import partial

from cluster import Cluster, running, until
from launches import OURS, TRAININGS, Launch
from programs import SLURMDDP
from rows import Row, measured_row, print_rows

ROUNDS = 1
FORK, *_ = OURS
FAULTS = 10
LONGEST_S = 1800


def measure_ettr(cluster: Cluster, *options: str) -> float:
    """Play the training; return the share of all time that was spent in steps that were kept."""
    folder = cluster.folder / f"faulty-{len(list(cluster.folder.glob('faulty-*')))}"
    folder.mkdir()
    more = ("--max-restarts=20", *options)
    launch = Launch(TRAININGS / "faulty.py", (str(folder),), nodes=2, ranks=1, partition="gpu", options=more)
    job = OURS[FORK](cluster, launch)
    until(lambda: not cluster.is_alive(job), LONGEST_S, pause_s=1.0)
    state = cluster.state(job)
    met = len([*folder.iterdir()])
    if (state, met) != ("COMPLETED", FAULTS):
        sys.exit(f"job {job} is {state} after {met} of {FAULTS} faults")
    name = max((cluster.folder / "jobs").glob("run-*"), key=lambda path: path.stat().st_mtime).name
    whole = json.loads(cluster.run([SLURMDDP, "status", name, "--json"]))["jobs"][0]["whole_run"]
    spent = ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in whole["seconds"].items())
    print(f"{' '.join(options) or 'without'}: ETTR {whole['ettr']:.1%}; {spent}; {whole['steps_repeated']} steps again")
    return float(whole["ettr"])


def rows() -> list[Row]:
    with running(nodes=2) as cluster:
        ours = partial(measure_ettr, cluster, "--hang-timeout=5s")
        peers = {"no watchdog": partial(measure_ettr, cluster)}
        name, wanted = "ETTR of 1,000 steps with ten faults, 2 x 1, fork", "at least 1.5 of no watchdog"
        return [measured_row(name, "of all time", ours, peers, rounds=ROUNDS, wanted=wanted)]


if __name__ == "__main__":
    print_rows(rows())
