"""What a rank sees of itself, its datagrams, and the watch of the supervisor, with processes of this machine."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from polling import until

from slurmddp import variables
from slurmddp.batch.policy import Result
from slurmddp.batch.watch import _NO_RANK, Watch
from slurmddp.runs.layout import RunDir
from slurmddp.supervisor_options import Options
from slurmddp.watchdog.beats import Beat, open_beat, seal
from slurmddp.watchdog.nodes import look_at_nodes
from slurmddp.watchdog.policy import follow
from slurmddp.watchdog.rank import Sampler
from slurmddp.watchdog.usage import measure

BEAT = Beat(3, 4, "0", "n2", 17, 2.0, place="load() at data.py:40", use=[2.0, 3000])
SECRET = "00ff"  # noqa: S105 - of the tests


def test_a_beat_arrives_as_it_was_sent():
    assert open_beat(seal(BEAT, SECRET), SECRET) == BEAT


@pytest.mark.parametrize(
    "datagram",
    [b"", b"x" * 100, seal(BEAT, "other"), seal(BEAT, SECRET)[:-1]],
)
def test_what_no_rank_of_the_attempt_has_sent_is_ignored(datagram):
    assert open_beat(datagram, SECRET) is None


def sample(work, times=6):
    """Look a few times at a thread that runs `work(is_over)`; return what was seen."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=[is_over])
    thread.start()
    sampler = Sampler(thread.ident)
    for _ in range(times):
        time.sleep(0.05)
        sampler.sample()
    is_over.set()
    thread.join()
    return sampler


def wait_for_it(is_over):
    is_over.wait()


def spin(is_over):
    while not is_over._flag:
        pass


def vary(is_over):
    code = compile("\nx = sum(range(20000))" * 50, "many", "exec")
    while not is_over._flag:
        exec(code)  # noqa: S102 - it has many lines


def test_a_thread_that_waits_is_in_one_call_and_in_the_programs_function():
    seen = sample(wait_for_it)
    assert (seen.same_s > 0.2, seen.few_s > 0.2, seen.wait) == (True, True, "")
    assert seen.place == f"wait_for_it() at {Path(__file__).name}:{wait_for_it.__code__.co_firstlineno + 1}"


def test_a_thread_that_spins_is_in_few_lines_and_in_no_call():
    seen = sample(spin)
    assert (seen.same_s < 0.1, seen.few_s > 0.2) == (True, True)


def test_a_thread_at_work_is_in_many_lines():
    assert sample(vary, 30).few_s < 1.0


@pytest.mark.parametrize(("completed", "wait"), [("6", "a collective on the GPU"), ("7", "")])
def test_a_thread_that_needs_the_gpu_waits_while_a_collective_is_pending(monkeypatch, completed, wait):
    """The form is that of torch 2.13, which gloo's recorder has, too."""
    status = {"0": {"last_enqueued_collective": "7", "last_completed_collective": completed}}
    said = json.dumps({"pg_status": status}).encode()
    recorder = SimpleNamespace(_dump_nccl_trace_json=lambda **_: said)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", recorder)
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(is_initialized=lambda: True))
    assert sample(wait_for_it).wait == wait


WAITS_IN_FORWARD = """
import os, sys, threading, time, torch, torch.distributed as dist
from slurmddp.watchdog.rank import Sampler
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(2))
if rank == 0:
    sys.stdin.read()
    os._exit(0)

def look(thread):
    sampler = Sampler(thread)
    while sampler.wait != "broadcast":
        time.sleep(0.05)
        sampler.sample()
    print(sampler.wait, sampler.place.split()[0], flush=True)
    os._exit(0)

def train():
    model(torch.ones(3, 2))

threading.Thread(target=look, args=[threading.get_ident()]).start()
train()
"""


def test_a_rank_that_waits_for_the_buffers_of_another_waits(tmp_path):
    command = [sys.executable, "-c", WAITS_IN_FORWARD]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen([*command, str(rank), tmp_path / "store"], **options) for rank in range(2)]
    assert ranks[1].communicate(timeout=120)[0] == "broadcast train()\n"
    ranks[0].communicate(timeout=60)


def test_the_form_of_the_flight_recorder():
    from torch._C import _distributed_c10d as c10d  # noqa: PLC0415 - as above

    assert "pg_status" in json.loads(c10d._dump_fr_trace_json(includeCollectives=False, onlyActive=True))


def test_usage_sees_the_cpu_and_the_files_of_children_and_not_its_own():
    before = measure()
    assert measure().moved_bytes - before.moved_bytes < 1000
    code = "open('/dev/null', 'wb').write(b'x' * 10**6); sum(range(10**7)); print(1, flush=True); open(0).read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        after = measure()
    assert after.children_cpu_s - before.children_cpu_s > 0.05
    assert after.moved_bytes - before.moved_bytes >= 10**6


RANK = """
import os, sys, threading, time
from slurmddp.watchdog import look, rank
from slurmddp.watchdog.beats import Beat
rank.SAMPLE_S = 0.2
steps = rank.Steps()
number, address = int(sys.argv[1]), sys.argv[2]
look.register(job="17", attempt="0.0", rank=number, host=f"n{number + 1}")
beat = Beat(number, 2, sys.argv[3], f"n{number + 1}", os.getpid(), 0.2)
threading.Thread(target=rank.send_beats, args=(beat, steps, address, "00ff"), daemon=True).start()
def all_reduce():
    time.sleep(60)
def load():
    time.sleep(60)
for _ in range(5):
    steps.count()
    time.sleep(0.2)
if number:
    load()
sys.modules["torch.distributed"] = None
rank._find_wait = lambda *_, **more: "all_reduce"
all_reduce()
"""


class Slurm:
    """Runs what is for a node on this machine; one node may not answer."""

    def __init__(self):
        self.silent, self.looked, self.killed = "", [], []

    def look_at_nodes(self, number, nodes, words, environ, *, limit_s):
        self.looked += nodes
        for node, rows, _ in look_at_nodes(number, nodes, words, environ, limit_s=limit_s):
            yield node, [row for row in rows if row["host"] == node], "no answer" * (node == self.silent)

    def send_signal(self, *signal):
        self.killed.append(signal)


class Watched:
    """A watch of an attempt, with what it has said."""

    def __init__(self, run):
        self.run, self.slurm, self.lines, self.events = run, Slurm(), [], []
        run.attempt("17", "0.0").mkdir(parents=True)
        job = SimpleNamespace(job_id="17", number=0, host="n1", head="n1", run=run)
        self.watch = Watch(Options(hang_timeout="1"), job, self.slurm, say=self.lines.append, record=self.events.append)
        folder = str(run.attempt("17", "0.0"))
        told = self.watch.start(
            {"SLURMDDP_ATTEMPT_DIR": folder, "SLURMDDP_SECRET": SECRET, variables.HEAD_ADDRESS: "::1"}
        )
        self.address = f"127.0.0.1:{told[variables.BEATS].rpartition(':')[2]}"


@pytest.fixture
def watched(tmp_path, monkeypatch):
    monkeypatch.setattr("slurmddp.batch.watch.TICK_S", 0.1)
    monkeypatch.setattr("slurmddp.batch.watch.SAVE_S", 0.5)
    made = Watched(RunDir(tmp_path))
    monkeypatch.setattr("slurmddp.watchdog.nodes.look_at_nodes", made.slurm.look_at_nodes)
    yield made
    made.watch.stop(Result(0, ""))


@pytest.fixture
def two_ranks(watched, request):
    """Two processes, in step 4 of the job, or as the parameter says."""
    words, step = [sys.executable, "-c", RANK], getattr(request, "param", "4")
    ranks = [subprocess.Popen([*words, str(number), watched.address, step]) for number in range(2)]
    yield ranks
    for rank in ranks:
        rank.kill()
        rank.wait()


def test_of_two_processes_the_one_that_hangs_is_named_its_stack_kept_and_all_are_killed(watched, two_ranks):  # noqa: ARG001 - they report
    until(lambda: watched.slurm.killed, 20)
    (hang,) = watched.events
    assert hang.reason == "rank 1 on n2 in load() at <string>:14, while 1 rank waited in all_reduce"
    assert (hang.hung_ranks, hang.hung_hosts, hang.place) == ((1,), ("n2",), "load() at <string>:14")
    assert 1 <= hang.stalled_s < 4
    rows = json.loads(watched.run.stacks("17", "0.0").read_text())
    assert [(row["rank"], row["stack"][0]["function"]) for row in rows] == [(1, "load"), (0, "all_reduce")]
    until(lambda: watched.slurm.killed == [("0.4", "TERM"), ("0.4", "KILL")], 10)
    assert watched.run.hang("17", "0.0").exists()


@pytest.mark.parametrize("two_ranks", [""], indirect=True)
def test_ranks_that_no_step_has_started_are_killed_on_this_node(watched, two_ranks):
    assert two_ranks[0].wait(20) == -signal.SIGTERM, "it is asked first"
    assert two_ranks[1].poll() is None and watched.events[0].hung_hosts == ("n2",)


@pytest.mark.parametrize(("is_there", "state"), [(True, "stopped"), (False, "unreachable")])
def test_a_stopped_process_is_looked_at_and_named(watched, two_ranks, is_there, state):
    watched.slurm.silent = "" if is_there else "n2"
    until(lambda: len(watched.watch._tracks.get("4", ())) == 2, 10)
    two_ranks[1].send_signal(signal.SIGSTOP)
    until(lambda: watched.events, 20)
    assert watched.events[0].reason.startswith(f"rank 1 on n2 {state}, last in ")
    until(lambda: watched.slurm.killed == [("0.4", "TERM"), ("0.4", "KILL")], 10)
    assert watched.slurm.looked == ["n2", "n1"], "each node is asked once: one that does not answer takes ten seconds"


def test_a_launch_with_a_node_that_does_not_answer_is_killed_with_the_ranks(watched, two_ranks, monkeypatch):
    """Slurm's srun waits for that node."""
    watched.slurm.silent = "n2"
    until(lambda: len(watched.watch._tracks.get("4", ())) == 2, 10)
    with subprocess.Popen(["sleep", "60"]) as launch:
        monkeypatch.setattr("slurmddp.batch.watch.descendants", lambda _: [str(launch.pid)])
        two_ranks[1].send_signal(signal.SIGSTOP)
        assert launch.wait(20) == -signal.SIGKILL
        until(lambda: watched.slurm.killed == [("0.4", "TERM"), ("0.4", "KILL")], 10)


@pytest.mark.parametrize(
    ("own_launch", "has_rank", "said"),
    [
        (False, True, ["no rank's reports arrive here (UDP): a hang of this training will not be noticed"]),
        (True, False, [_NO_RANK]),
        (False, False, []),
    ],
)
def test_without_any_report_the_log_says_so_once(watched, monkeypatch, own_launch, has_rank, said):
    watched.watch.stop(Result(0, ""))
    monkeypatch.setattr("slurmddp.batch.watch.UNHEARD_S", 0.0)
    monkeypatch.setattr("slurmddp.batch.watch.TICK_S", 0.1)
    monkeypatch.setattr("slurmddp.batch.watch.SAVE_S", 0.5)
    if has_rank:
        (watched.run.attempt("17", "0.0") / "0.begin").touch()
    options = Options(own_launch=own_launch)
    again = Watch(options, watched.watch._job, watched.slurm, say=watched.lines.append, record=watched.events.append)
    again.start(watched.watch._environ)
    time.sleep(0.5)
    again.stop(Result(0, ""))
    assert watched.lines == said


def test_at_the_end_of_an_attempt_what_its_ranks_use_is_recorded(watched):
    host, port = watched.address.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        for rank in range(2):
            sending.sendto(seal(BEAT._replace(rank=rank), SECRET), (host, int(port)))
    until(lambda: len(watched.watch._tracks.get("0", ())) == 2, 10)
    watched.watch.stop(Result(0, ""))
    (usage,) = watched.events
    assert usage.ranks == {"0": ("n2", 2.0, 3000), "1": ("n2", 2.0, 3000)}


def test_two_trainings_at_once_are_told_apart_and_one_that_has_ended_is_left_out(watched):
    usage = lambda tracks: (setattr(watched.watch, "_tracks", tracks), watched.watch._record_usage())  # noqa: E731
    track = lambda step, at: follow(None, BEAT._replace(rank=0, step=step), at)  # noqa: E731
    usage({"1": {0: track("1", 100.0)}, "2": {0: track("2", 100.5)}})
    usage({"1": {0: track("1", 50.0)}, "2": {0: track("2", 100.5)}})
    both, last = watched.events
    assert [*both.ranks] == ["0 of step 1", "0 of step 2"] and [*last.ranks] == ["0"]
