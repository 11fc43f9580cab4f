"""Which silent nodes the watch gives up, where spares wait: rank 0 is on n1 with the supervisor, rank 1 on n2.

Slurm is a stand-in, and the ranks are datagrams that this process sends. The watch of hangs is in test_supervisor.py.
"""

import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field

import pytest
from polling import until

from slurmddp import variables
from slurmddp.batch import watch as watch_module
from slurmddp.batch.attempt import Job
from slurmddp.batch.policy import Result
from slurmddp.batch.watch import Watch
from slurmddp.runs.layout import RunDir
from slurmddp.supervisor_options import Options
from slurmddp.watchdog.beats import Beat, seal

LOOK_S = 0.6
LONG_S = 3 * LOOK_S
"""After this time a node would have been given up."""
LOST, DONE = "76 rank 1 on n2: lost rank 0", "0 done"
KILLED = Result(137, "no rank left a record of its end, as after kill -9; the status is srun's")


@dataclass
class FakeSlurm:
    """Starts steps on some nodes, and not on others."""

    unreachable: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    signals: list[tuple[str, str]] = field(default_factory=list)

    def look(self, number, nodes, words, *_, **__):
        assert (number, words[-2:]) == (17, ["17", "0.0"])
        self.asked += sorted(nodes)
        yield from ((node, [], "no answer" if node in self.unreachable else "") for node in nodes)

    def send_signal(self, target, signal):
        self.signals.append((signal, target))


@dataclass
class Case:
    """A watch that has begun."""

    watch: Watch
    slurm: FakeSlurm
    folder: RunDir
    environ: dict[str, str]
    log: list[str]

    def play(self, *ranks: int, long_s: float = LONG_S) -> list[str]:
        """Let both ranks report, then only these; return the lost nodes, when there are some or after a while."""
        host, port = self.environ[variables.BEATS].split(":")
        assert host == "n1"
        ends_at, talking = time.monotonic() + long_s, (0, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            while time.monotonic() < ends_at and not self.watch.lost:
                for rank in talking:
                    beat = Beat(rank, 2, "4", f"n{rank + 1}", 1, 0.1)
                    sending.sendto(seal(beat, self.environ[variables.SECRET]), ("127.0.0.1", int(port)))
                talking = ranks
                time.sleep(0.05)
        return self.watch.lost

    def ends(self, rank: int, text: str) -> None:
        self.folder.rank_record("17", "0.0", rank).write_text(text + "\n")


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Return a function that begins a watch; no process is ended except for those that a test names."""
    for name, seconds in {"TICK_S": 0.1, "LOOK_S": LOOK_S, "SAVE_S": 0.3, "END_S": 0.3}.items():
        monkeypatch.setattr(watch_module, name, seconds)
    monkeypatch.setattr(watch_module, "descendants", lambda _: [])
    begun = []

    def start(*unreachable, spares=1):
        run, slurm, log = RunDir(tmp_path), FakeSlurm(unreachable), []
        monkeypatch.setattr("slurmddp.watchdog.nodes.look_at_nodes", slurm.look)
        folder = run.attempt("17", "0.0")
        folder.mkdir(parents=True)
        job = Job("c", "17", 17, 0, "n1", "n1,n2", ("n1", "n2"), "n1", 2, 1, run)
        environ = {variables.ATTEMPT_DIR: str(folder), variables.SECRET: "x", variables.HEAD_ADDRESS: "n1"}
        watch = Watch(Options(spares=spares), job, slurm, say=log.append, record=lambda _: None)
        begun.append(watch)
        return Case(watch, slurm, run, environ | watch.start(environ), log)

    yield start
    for watch in begun:
        watch.stop(KILLED)


def test_the_ranks_are_ended_when_a_node_is_silent_and_does_not_answer(begin):
    case = begin("n2")
    assert case.play(0) == ["n2"]
    until(lambda: ("KILL", "17.4") in case.slurm.signals, 10, lambda: case.slurm.signals)
    assert case.slurm.signals[0] == ("TERM", "17.4"), "rank 0 saves what it holds"
    assert case.folder.hang("17", "0.0").exists()
    result = case.watch.stop(KILLED)
    assert result.status == 76 and re.fullmatch(r"no sign of n2 for \d s", result.reason)
    assert case.log[0] == f"WARNING: {result.reason}; the ranks are ended, and start again on other nodes"


def test_the_launch_is_ended_too(begin, monkeypatch):
    """Slurm's srun waits for a node that does not answer until SlurmdTimeout."""
    case = begin("n2")
    with subprocess.Popen(["sleep", "60"]) as launch:
        monkeypatch.setattr(watch_module, "descendants", lambda _: [str(launch.pid)])
        assert case.play(0) == ["n2"]
        assert launch.wait(10) == -signal.SIGKILL


def test_a_silent_node_that_answers_is_asked_again_and_kept(begin):
    """A rank that holds the interpreter's lock reports nothing."""
    case = begin()
    assert case.play(0, long_s=4 * LOOK_S) == []
    assert case.slurm.asked[:4] == ["n1", "n2", "n1", "n2"]
    assert case.slurm.signals == [] and case.log == []
    assert case.watch.stop(KILLED) == KILLED


def test_where_slurm_starts_no_step_anywhere_no_node_is_lost(begin):
    """Its controller restarts, and says nothing of the node."""
    case = begin("n1", "n2")
    assert case.play(0) == []
    assert case.slurm.asked[:2] == ["n1", "n2"] and case.slurm.signals == []


def test_when_all_nodes_are_silent_none_is_asked(begin):
    """It is this node whose network is gone, or the supervisor has been stopped."""
    case = begin("n1", "n2")
    assert case.play() == []
    assert case.slurm.asked == []


def test_when_all_others_have_ended_a_silent_node_is_not_asked(begin):
    case = begin()
    case.ends(0, LOST)
    assert case.play() == ["n2"]
    assert case.slurm.asked == []
    assert case.watch.stop(KILLED).reason.startswith("no sign of n2 for ")


def test_a_rank_that_has_ended_is_not_silent(begin):
    case = begin("n2")
    case.ends(1, LOST)
    assert case.play(0) == []
    assert case.slurm.asked == []


def test_a_training_that_is_done_is_done_although_a_node_falls_silent_at_the_end(begin):
    case = begin()
    case.ends(0, DONE)
    case.play()
    done = Result(0, "done")
    assert case.watch.stop(done) == done


def test_without_spares_no_node_is_asked(begin):
    case = begin("n2", spares=0)
    assert case.play(0) == []
    assert case.slurm.asked == []
