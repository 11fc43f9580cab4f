"""Bad days on a real Slurm: the network, the room or the disk of a training goes away while it runs.

In test_survival.py ranks and supervisors are stopped for 90 s, and the disk of a whole run is full for a while.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from command_line import SLURMDDP
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

TRAIN = Path(__file__).parent / "programs" / "train.py"
TOTAL, EVERY = 60, 10
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
CUT_S, WIDTH = 120, 2
CLOCK = Path(__file__).parent / "programs" / "clock.c"
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a disk"),
]


class Day:
    """A training on nodes of its own."""

    def __init__(self, sandbox: slurm_sandbox.Sandbox, root: Path, name: str, nodes: list[str]) -> None:
        self.sandbox, self.root, self.name, self.nodes = sandbox, root, name, nodes
        self.run, self.job = RunDir(root / "jobs" / name), ""
        self.environ = {**os.environ, **sandbox.environment(), "OMP_NUM_THREADS": "1"}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.root, env=self.environ, capture_output=True, text=True, timeout=300, check=False
        )

    def submit(self, *options: str, step_s: float = 0.5) -> None:
        others = sorted(set(self.sandbox.plan.node_names) - set(self.nodes))
        place = [f"--nodes={len(self.nodes)}", "--ntasks-per-node=1", f"--exclude={','.join(others)}"]
        program = [TRAIN, str(TOTAL), str(step_s), str(EVERY)]
        done = self.call(SLURMDDP, "submit", *place, f"--name={self.name}", *options, *map(str, program))
        assert done.returncode == 0, done.stderr
        self.job = done.stdout.strip()

    def state(self) -> str:
        said = self.call("scontrol", "--oneliner", "show", "job", self.job).stdout
        return re.findall(r"JobState=(\S*)", said)[0]

    def taken(self, rank: int = 0) -> list[str]:
        path = self.run.path / f"steps.{rank}"
        return path.read_text().splitlines() if path.exists() else []

    def until_steps(self, count: int) -> None:
        until(lambda: len(self.taken()) >= count or self.state() in ENDED, 300, self.story, pause_s=ASK_SLURM_S)

    def end(self) -> str:
        until(lambda: self.state() in ENDED, 900, self.story, pause_s=ASK_SLURM_S)
        return self.state()

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def story(self) -> str:
        """All that is known, for the message of a test that fails."""
        logs = sorted(self.run.logs.rglob("*.out"))
        parts = [f"\n== {path.relative_to(self.root)}\n{path.read_text(errors='replace')[-2500:]}" for path in logs]
        return self.call("scontrol", "show", "job", self.job).stdout + "".join(parts)

    def model(self) -> dict[str, torch.Tensor]:
        return torch.load(self.run.model, weights_only=True)


def calm(day: Day) -> None:
    day.submit(step_s=0.0)


def cut_network(day: Day) -> None:
    """Cut the second node's network for two minutes, which Slurm bears."""
    day.submit()
    day.until_steps(15)
    day.sandbox.disconnect(day.nodes[1])
    time.sleep(CUT_S)
    day.sandbox.reconnect(day.nodes[1])


def fill_checkpoints(day: Day) -> None:
    """Let the folder of checkpoints have room for two of them, which are there while a third is written."""
    day.submit(step_s=0.1)


def lose_disk(day: Day) -> None:
    """Let the file system of the run become read-only for good, as Linux makes it after an error of the disk."""
    day.submit()
    day.until_steps(15)
    device = Path(
        subprocess.check_output(["findmnt", "--noheadings", "--output=SOURCE", day.run.path], text=True).strip()
    )
    Path("/sys/fs/ext4", device.name, "trigger_fs_error").write_text("1")


def set_clock_back(day: Day) -> None:
    """Set the clock of the supervisor and of all ranks back by an hour, and requeue the job in that hour."""
    library, offset = day.root / "clock.so", day.root / "offset"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    offset.write_text("0")
    day.submit(f"--env=LD_PRELOAD={library}", f"--env=CLOCK_OFFSET_FILE={offset}")
    day.until_steps(15)
    offset.write_text("-3600")
    day.until_steps(35)
    assert day.call(SLURMDDP, "requeue", day.name).returncode == 0, day.story()


DAYS = {
    "calm": calm,
    "cut": cut_network,
    "quota": fill_checkpoints,
    "read-only": lose_disk,
    "clock": set_clock_back,
}


@pytest.fixture(scope="module")
def chosen(request) -> set[str]:
    return {"calm"} | {item.callspec.params["name"] for item in request.session.items if "days" in item.fixturenames}


@pytest.fixture(scope="module")
def root(tmp_path_factory, chosen) -> Iterator[Path]:
    """Return the folder of all runs, with a small disk in two of them: the nodes see what was mounted before them."""
    root = tmp_path_factory.mktemp("bad-days")
    small, failing, image = root / "jobs/quota/checkpoints", root / "jobs/read-only", root / "image"
    mounts = {small: ["-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs"]} if "quota" in chosen else {}
    if "read-only" in chosen:
        image.touch()
        os.truncate(image, 2**24)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        mounts[failing] = ["-o", "loop,errors=remount-ro", str(image)]
    for disk, words in mounts.items():
        disk.mkdir(parents=True)
        subprocess.run(["mount", *words, disk], check=True)
    yield root
    for disk in mounts:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture(scope="module")
def days(root, chosen, slurm_programs) -> Iterator[dict[str, Future[Day]]]:
    del slurm_programs
    names = sorted(chosen)
    plan = slurm_sandbox.Plan(name=f"days-{os.getpid()}", nodes=WIDTH * len(names), slurmd_timeout_s=300)
    sandbox = slurm_sandbox.up(plan, die_with_parent=True)

    def play(name: str) -> Day:
        at = WIDTH * names.index(name)
        day = Day(sandbox, root, name, list(plan.node_names[at : at + WIDTH]))
        DAYS[name](day)
        day.end()
        return day

    with ThreadPoolExecutor(len(names)) as pool:
        yield {name: pool.submit(play, name) for name in names}
    sandbox.down()


@pytest.mark.parametrize("name", [pytest.param("cut", marks=pytest.mark.soak), "quota"])
def test_it_ends_in_its_first_attempt_with_the_bits_of_a_calm_one(days, name):
    calm, day = days["calm"].result(), days[name].result()
    assert (calm.state(), day.state()) == ("COMPLETED", "COMPLETED"), day.story()
    wanted, got = calm.model(), day.model()
    assert all(torch.equal(wanted[key], got[key]) for key in wanted), day.story()
    assert day.taken() == calm.taken() and day.taken(1) == calm.taken(1)
    assert [event["attempt"] for event in day.events("start")] == ["0.0"]
    assert bool(day.events("checkpoint-failed")) == (name == "quota")


@pytest.mark.parametrize("name", ["quota"])
def test_checkpoints_without_room_are_events_and_the_newest_whole_one_stays(days, name):
    day = days[name].result()
    failed, saved = day.events("checkpoint-failed"), day.events("checkpoint")
    assert {event["reason"].partition(":")[0] for event in failed} == {"No space left on device"}, day.story()
    steps = sorted(path.name for path in day.run.checkpoints.iterdir() if not path.name.startswith("."))
    assert steps[-1] == f"step-{saved[-1]['step']:09}" and saved[-1]["step"] < failed[-1]["step"] == TOTAL
    assert (day.run.checkpoints / steps[-1] / "manifest.json").is_file()


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("mkfs.ext4"), reason="the disk that fails is one of ext4")
@pytest.mark.parametrize("name", ["read-only"])
def test_a_disk_that_became_read_only_ends_the_job_and_the_views_say_what_slurm_says(days, name):
    """Nothing can be recorded any more, so that only Slurm knows the end."""
    day = days[name].result()
    assert day.state() == "FAILED", day.story()
    assert [event["event"] for event in read_records(day.run.events)][-1] in ("checkpoint", "loop")
    assert len(day.taken()) < TOTAL and day.events("attempt_end") == []
    shown = day.call(SLURMDDP, "status", name)
    assert shown.returncode == 1 and f"{name}: job {day.job} is FAILED\n" in shown.stdout
    assert "exit status 77:0" in shown.stdout and "Traceback" not in shown.stderr
    found = day.call(SLURMDDP, "diagnose", name)
    assert "scontrol: FAILED, NonZeroExitCode, 77:0" in found.stdout and "Traceback" not in found.stderr


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("cc"), reason="the clock is a library that a compiler makes")
@pytest.mark.parametrize("name", ["clock"])
def test_a_clock_set_back_by_an_hour_costs_no_step_and_no_bit(days, name):
    calm, day = days["calm"].result(), days[name].result()
    assert day.state() == "COMPLETED", day.story()
    times = [event["time"] for event in read_records(day.run.events)]
    assert any(-3700 < later - earlier < -3500 for earlier, later in pairwise(times))
    assert [event["attempt"] for event in day.events("start")] == ["0.0", "1.0"]
    wanted, got = calm.model(), day.model()
    assert all(torch.equal(wanted[key], got[key]) for key in wanted), day.story()
    assert day.taken() == calm.taken() and day.taken(1) == calm.taken(1)
    assert day.call(SLURMDDP, "status", name).returncode == 0
    for command in ("status", "diagnose", "report"):
        shown = day.call(SLURMDDP, command, name)
        assert "Traceback" not in shown.stderr, shown.stderr
