"""A real Slurm for the tests that want one, on this machine and in namespaces of its own."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import hypothesis
import pytest
from command_line import SLURMDDP, job_output
from polling import ASK_SLURM_S, until
from preload import Server

from slurmddp import sandbox as slurm_sandbox
from slurmddp.errors import ClusterError
from slurmddp.slurm.commands import show
from slurmddp.slurm.values import parse_record

_ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}

Job = dict[str, str]

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background deaf to it
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes find our modules compiled, as a user's do
os.environ.pop("VIRTUAL_ENV", None)  # the ranks' Python is to be that of the tests, whatever is active around them


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test that uses Slurm's programs with `slurm`; put the files marked `long` first.

    Leave out what is marked `soak` or `programs`, unless SLURMDDP_TESTS_SOAK or SLURMDDP_TESTS_PROGRAMS is 1.
    """
    for mark in ("soak", "programs"):
        if os.environ.get(f"SLURMDDP_TESTS_{mark.upper()}") != "1":
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(mark)])
            items[:] = [item for item in items if not item.get_closest_marker(mark)]
    for item in items:
        if {"sandbox", "shapes", "slurm_programs"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slurm)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


_number = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def shared_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let what several tests share remember no folders and nodes in the files of the user who tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield


@pytest.fixture(autouse=True)
def state_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let each test remember its own folders of runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / f"state-{next(_number)}"))


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return what forks processes that have torch loaded."""
    with contextlib.closing(Server(tmp_path_factory.mktemp("preloaded"))) as server:
        yield server


@pytest.fixture(scope="session")
def slurm_programs() -> None:
    """Skip where Slurm cannot run; SLURMDDP_TESTS_REQUIRE_SLURM=1 makes that a failure."""
    _need_slurm()


@pytest.fixture(scope="session")
def sandbox() -> Iterator[slurm_sandbox.Sandbox]:
    """Return a cluster of two nodes with 16 CPUs and 8 GPUs each, which ends with this process at the latest."""
    _need_slurm()
    plan = slurm_sandbox.Plan(name=f"pytest-{os.getpid()}")
    running = slurm_sandbox.up(plan, die_with_parent=True)
    yield running
    running.down()


SHAPES = (
    "two:cpus=40,gpus=2",
    "eight:cpus=40,gpus=a100:8",
    "cpu:cpus=40,MaxTime=1:00:00,MaxNodes=1,PriorityTier=1,GraceTime=7,PreemptMode=REQUEUE",
    "all:nodes=0,Nodes=ALL",
    "empty:nodes=0",
)


@pytest.fixture(scope="session")
def shapes() -> Iterator[slurm_sandbox.Sandbox]:
    """Return a cluster of partitions whose nodes differ: 2 GPUs, 8 GPUs of a type, none; limits; all; and no nodes."""
    _need_slurm()
    partitions = tuple(map(slurm_sandbox.Shape.parse, SHAPES))
    plan = slurm_sandbox.Plan(name=f"shapes-{os.getpid()}", nodes=0, partitions=partitions)
    running = slurm_sandbox.up(plan, die_with_parent=True)
    yield running
    running.down()


def _need_slurm() -> None:
    try:
        slurm_sandbox.check_machine()
    except ClusterError as error:
        if os.environ.get("SLURMDDP_TESTS_REQUIRE_SLURM") == "1":
            raise
        pytest.skip(str(error))


@pytest.fixture
def small_environment(tmp_path: Path) -> Path:
    """Return a virtual environment whose base is a copy of the interpreter with links to its library: busy disks."""
    base, folder = tmp_path / "base", tmp_path / "venv"
    real, library = Path(sys.base_prefix), f"lib/python3.{sys.version_info.minor}"
    (base / "bin").mkdir(parents=True)
    (base / library / "site-packages").mkdir(parents=True)
    shutil.copy(sys._base_executable, base / "bin/python3")
    for path in [*real.glob("lib/libpython*"), *(real / library).iterdir()]:
        if path.name not in ("site-packages", "dist-packages"):
            (base / path.relative_to(real)).symlink_to(path)
    subprocess.run([base / "bin/python3", "-m", "venv", "--without-pip", folder], check=True)
    return folder


@pytest.fixture
def slurm_env(sandbox: slurm_sandbox.Sandbox) -> dict[str, str]:
    """Return this process's environment, pointed at the sandbox."""
    return {**os.environ, **sandbox.environment()}


@pytest.fixture
def slurm(slurm_env: dict[str, str]) -> Callable[..., str]:
    """Return a function that runs one of Slurm's programs to its end and returns what it printed."""

    def run(*command: str, timeout_s: float = 300) -> str:
        result = subprocess.run(command, env=slurm_env, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert result.returncode == 0, f"{command} ended {result.returncode}: {result.stderr}"
        return result.stdout

    return run


@pytest.fixture
def cli(
    slurm_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs slurmddp in an empty folder, pointed at the sandbox."""
    monkeypatch.chdir(tmp_path)

    def run(
        *words: str, status: int = 0, path: Sequence[Path] = (), environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = slurm_env | {"OMP_NUM_THREADS": "1"} | (environ or {})
        environment["PATH"] = ":".join([*map(str, path), environment["PATH"]])
        done = subprocess.run([SLURMDDP, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr + job_output(tmp_path)
        return done

    return run


@pytest.fixture
def long_grace(slurm: Callable[..., str]) -> Iterator[None]:
    """Give preempted jobs of partitions low and cancel the time that a busy machine needs, while the test lasts."""
    for partition in ("low", "cancel"):
        slurm("scontrol", "update", f"PartitionName={partition}", "GraceTime=60")
    yield
    for partition in ("low", "cancel"):
        slurm("scontrol", "update", f"PartitionName={partition}", "GraceTime=10")


@pytest.fixture
def wait_for_job(slurm: Callable[..., str]) -> Callable[..., Job]:
    """Return a function that waits for a job's end, or for one of some states, and returns Slurm's record of it."""

    def wait(job_id: str | int, *states: str, timeout_s: float = 600) -> Job:
        def record() -> Job | None:
            job = _record(slurm, job_id)
            return job if job["JobState"] in (states or _ENDED) else None

        return until(record, timeout_s, lambda: _record(slurm, job_id), pause_s=ASK_SLURM_S)

    return wait


def _record(slurm: Callable[..., str], job_id: str | int) -> Job:
    return dict(parse_record(slurm(*show("job", str(job_id)))))
