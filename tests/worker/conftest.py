"""Starts ranks on loopback as srun would, by its variables, and collects what they leave."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from polling import until
from ports import free_port
from preload import Preloaded, clean_environment

from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

JOB, ATTEMPT = "17", "0.0"


@dataclass(frozen=True)
class Ended:
    """What became of the processes of one attempt."""

    statuses: list[int]
    stdout: str
    stderr: str
    run: RunDir
    attempt: str = ATTEMPT

    def log(self, rank: int) -> str:
        return self.run.rank_log(JOB, self.attempt, rank).read_text()

    def record(self, rank: int) -> str | None:
        path = self.run.rank_record(JOB, self.attempt, rank)
        return path.read_text() if path.exists() else None

    def events(self, event: str) -> list[dict]:
        return [record for record in read_records(self.run.events) if record["event"] == event]


def of_run(run: RunDir, launcher: str, attempt: str = ATTEMPT) -> dict[str, str]:
    """Return what the batch script exports."""
    run.attempt(JOB, attempt).mkdir(parents=True)
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "SLURMDDP_STORE_PORT": str(free_port()),
        "SLURMDDP_STARTED_BY": launcher,
        "SLURMDDP_RUN_DIR": str(run.path),
        "SLURMDDP_JOB_ID": JOB,
        "SLURMDDP_ATTEMPT": attempt,
        "SLURMDDP_HOSTS": "n1",
    }


def of_task(rank: int, count: int) -> dict[str, str]:
    """Return what srun sets for a task of a step on one node."""
    return {
        "SLURM_JOB_ID": JOB,
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": str(count),
        "SLURM_NNODES": "1",
        "SLURM_STEP_TASKS_PER_NODE": str(count),
        "SLURMD_NODENAME": "n1",
    }


@dataclass(frozen=True)
class Started:
    """The processes of one attempt, running."""

    processes: list[subprocess.Popen | Preloaded]
    run: RunDir
    attempt: str
    ranks: int

    def until_said(self, word: str) -> None:
        """Wait until each rank has written the word into its log."""
        logs = [self.run.rank_log(JOB, self.attempt, rank) for rank in range(self.ranks)]
        until(lambda: all(log.exists() and word in log.read_text() for log in logs))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal as Slurm does, to each task."""
        for process in self.processes:
            process.send_signal(number)

    def wait(self, timeout_s: float = 120) -> Ended:
        outputs = [process.communicate(timeout=timeout_s) for process in self.processes]
        return Ended(
            [process.returncode for process in self.processes],
            "".join(output[0] or "" for output in outputs),
            "".join(output[1] or "" for output in outputs),
            self.run,
            self.attempt,
        )


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Return the functions that make a rank's variables."""
    return SimpleNamespace(clean_environment=clean_environment, of_run=of_run, of_task=of_task)


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Started]]:
    """Return a function that starts the ranks of one attempt; words may be bytes.

    Where the mark `preloaded` says that the start itself is not what is tested, they find torch loaded.
    """
    started: list[subprocess.Popen | Preloaded] = []
    server = request.getfixturevalue("preloaded") if request.node.get_closest_marker("preloaded") else None
    numbers = iter(range(100))

    def begin(
        launcher: str,
        count: int,
        *words: str | bytes,
        cwd: Path | None = None,
        run: RunDir | None = None,
        attempt: str = ATTEMPT,
        log: Path | None = None,
        **extra: str,
    ) -> Started:
        run = run or RunDir(tmp_path / f"run-{next(numbers)}")
        common = clean_environment() | of_run(run, launcher, attempt) | extra
        module = ["slurmddp.worker", *words]
        environments = [of_task(rank, count) for rank in range(count)]
        if launcher == "fork":
            module[:1] = ["slurmddp.runtime.launch.fork", f"--nproc-per-node={count}", "--"]
            environments = [of_task(0, 1)]
        processes = []
        for rank, environment in enumerate(environments):
            forks = launcher == "fork"
            with contextlib.nullcontext() if forks else (log or run.rank_log(JOB, attempt, rank)).open("ab") as output:
                if server:
                    processes.append(Preloaded(server, module, common | environment, cwd or tmp_path, output))
                    continue
                process = subprocess.Popen(
                    [sys.executable, "-P", "-u", "-m", *module],
                    env=common | environment,
                    cwd=cwd or tmp_path,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if forks else output,
                    stderr=subprocess.PIPE if forks else subprocess.STDOUT,
                    text=True,
                )
            processes.append(process)
        started.extend(processes)
        return Started(processes, run, attempt, count)

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def alone(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Ended]:
    """Return a function that runs one rank of a world of one, and keeps its streams apart."""
    numbers = iter(range(100))
    server = request.getfixturevalue("preloaded") if request.node.get_closest_marker("preloaded") else None

    def run_alone(
        *words: str | bytes,
        cwd: Path | None = None,
        flags: tuple[str, ...] = ("-P",),
        stdin: bytes = b"",
        **extra: str,
    ) -> Ended:
        run = RunDir(tmp_path / f"alone-{next(numbers)}")
        environment = clean_environment() | of_run(run, "srun") | of_task(0, 1) | extra
        if server:
            process = Preloaded(server, ["slurmddp.worker", *words], environment, cwd or tmp_path, None)
            output = process.communicate(300)
            return Ended([process.returncode], *output, run)
        done = subprocess.run(
            [sys.executable, *flags, "-m", "slurmddp.worker", *words],
            env=environment,
            cwd=cwd or tmp_path,
            input=stdin,
            capture_output=True,
            timeout=300,
            check=False,
        )
        return Ended([done.returncode], done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode(), run)

    return run_alone


@pytest.fixture
def script(request, tmp_path) -> Callable[[str], Path]:
    """Return a function that writes a program, which begins with the HEAD of the tests' module."""

    def write(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(request.module.HEAD + text)
        return path

    return write
