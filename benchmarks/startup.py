"""How soon the command line answers, against the libraries it stands on and against the peers' start.

    python benchmarks/startup.py

The programs run in turn, so that all see the same machine. `status` and what it is measured against ask a real Slurm.
"""

import resource
import subprocess
import sys
from functools import partial

from cluster import Cluster, running
from programs import ENVIRON, PEERS_PYTHON, SLURMDDP, TORCHX, run_seconds
from rows import Row, in_turn, measured_row, print_rows

ROUNDS = 15
LIBRARIES = "import click, jinja2"
WANTED = f"at most 1.3 of {LIBRARIES}"
COMMANDS = {
    "slurmddp --help": [SLURMDDP, "--help"],
    "slurmddp render": [SLURMDDP, "render", "--nodes", "2", "--gpus-per-node", "8"],
}
OTHERS = {
    LIBRARIES: [sys.executable, "-c", LIBRARIES],
    "torchx --help": [TORCHX, "--help"],
    "import submitit": [PEERS_PYTHON, "-c", "import submitit"],
}

SUPERVISOR = [sys.executable, "-P", "-u", "-m", "slurmddp.batch", "--protocol=1", "--signal-lead=120"]
"""Outside of a job it ends when it has read its options."""
SUPERVISOR_STATUS = 2


def command_rows() -> list[Row]:
    commands = {**COMMANDS, **OTHERS}
    taken = in_turn({name: partial(run_seconds, words) for name, words in commands.items()}, ROUNDS, warm_up=True)
    others = {name: taken[name] for name in OTHERS}
    return [Row(name=name, unit="s", ours=taken[name], peers=others, wanted=WANTED) for name in COMMANDS]


def status_row(cluster: Cluster) -> Row:
    """Measure `status` of one waiting job, of which each peer is asked, too."""
    job = submit_waiting_job(cluster)
    submitit = f"import submitit; print(submitit.SlurmJob(folder='.', job_id='{job}').state)"
    commands = {
        "squeue": ["squeue", f"--jobs={job}"],
        "submitit's Job.state": [PEERS_PYTHON, "-c", submitit],
    }
    return measured_row(
        "slurmddp status, one job",
        "s",
        lambda: run_seconds([SLURMDDP, "status"], cluster.environ, cluster.folder),
        {
            **{name: partial(run_seconds, words, cluster.environ, cluster.folder) for name, words in commands.items()},
            "torchx status": "no: it asks sacct alone, and this Slurm has no accounting",
        },
        rounds=ROUNDS,
        warm_up=True,
    )


def submit_waiting_job(cluster: Cluster) -> str:
    cluster.occupy()
    return cluster.run([SLURMDDP, "submit", "--name", "waits"]).strip()


def cpu_seconds(command: list[str], status: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, check=False, capture_output=True, env=ENVIRON).returncode
    if ended != status:
        sys.exit(f"{command} ended with {ended}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def supervisor_row() -> Row:
    return measured_row(
        "start of the supervisor, time of a CPU",
        "s",
        lambda: cpu_seconds(SUPERVISOR, SUPERVISOR_STATUS),
        {"an empty Python": lambda: cpu_seconds([sys.executable, "-c", ""], 0)},
        rounds=ROUNDS,
        warm_up=True,
        wanted="at most 0.1 s",
    )


def rows() -> list[Row]:
    with running(nodes=1) as cluster:
        return [*command_rows(), status_row(cluster), supervisor_row()]


if __name__ == "__main__":
    print_rows(rows())
