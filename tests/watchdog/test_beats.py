"""What a rank sees of itself, its datagrams, and their receiver, with processes of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from polling import until

from slurmddp.watchdog.beats import open_beat, seal
from slurmddp.watchdog.policy import Beat, Timeout
from slurmddp.watchdog.rank import COUNTS, Sampler
from slurmddp.watchdog.receiver import Receiver, open_socket
from slurmddp.watchdog.usage import Usage

BEAT = Beat(3, 4, "0", "n2", 17, 1e9, 2.5, 2.0, place="load() at data.py:40")
SECRET = "00ff"  # noqa: S105 - of the tests


def test_a_beat_arrives_as_it_was_sent():
    assert open_beat(seal(BEAT, SECRET), SECRET) == BEAT


@pytest.mark.parametrize(
    "datagram",
    [b"", b"x" * 100, seal(BEAT, "other"), seal(BEAT, SECRET)[:-1], seal(BEAT[:-1], SECRET), seal((), SECRET)],
)
def test_what_no_rank_of_the_attempt_has_sent_is_ignored(datagram):
    assert open_beat(datagram, SECRET) is None


def test_values_of_other_types_are_ignored():
    assert open_beat(seal(BEAT._replace(rank="3"), SECRET), SECRET) is None


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


def test_the_form_of_the_flight_recorder():
    from torch._C import _distributed_c10d as c10d  # noqa: PLC0415 - as above

    assert "pg_status" in json.loads(c10d._dump_fr_trace_json(includeCollectives=False, onlyActive=True))


def test_what_a_look_costs():
    """The thread that does both once a second takes less than a thousandth of a CPU."""
    import torch  # noqa: F401, PLC0415 - its modules make some of the look

    sampler, usage = Sampler(threading.main_thread().ident), Usage()
    begin = time.thread_time()
    for _ in range(100):
        sampler.sample()
        usage.measure()
    took_us = (time.thread_time() - begin) / 100 * 1e6
    print(f"a look takes {took_us:.0f} us of the CPU")  # noqa: T201 - the figure
    assert took_us < 1000


def test_usage_sees_the_cpu_and_the_files_of_children_and_not_its_own():
    usage = Usage()
    usage.measure()
    before = usage.measure()
    assert usage.measure().moved_bytes - before.moved_bytes < 100
    code = "open('/dev/null', 'wb').write(b'x' * 10**6); sum(range(10**7)); print(1, flush=True); open(0).read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        after = usage.measure()
    assert after.children_cpu_s - before.children_cpu_s > 0.05
    assert after.moved_bytes - before.moved_bytes >= 10**6


RANK = """
import sys, time
import slurmddp.watchdog.rank as rank
rank.SAMPLE_S = rank.EVERY_S = 0.2
number, address = int(sys.argv[1]), sys.argv[2]
heart = rank.Heart(address, "00ff", rank=number, world_size=2, host=f"n{number + 1}")
def all_reduce():
    time.sleep(60)
def load():
    time.sleep(60)
for _ in range(5):
    rank.COUNTS.step()
    time.sleep(0.2)
if number:
    load()
rank.Sampler._find_wait = lambda *_, **more: "all_reduce"
all_reduce()
"""


class Heard:
    """A receiver with what it has reported."""

    def __init__(self, folder, **options):
        self.hangs, self.lines, self.looked = [], [], []
        self.socket = open_socket(20000, 29999, os.getpid())
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.receiver = Receiver(
            opened=self.socket,
            secret=SECRET,
            progress=folder / "progress.json",
            look=self.look,
            report=lambda step, hang, _, stalled_s: self.hangs.append((step, hang, stalled_s)),
            say=self.lines.append,
            **options,
        )
        self.receiver.start()

    def look(self, tracks):
        self.looked += [track.beat.rank for track in tracks]
        return {track.beat.rank: ("stopped", track.beat.cpu_s) for track in tracks}


@pytest.fixture
def heard(tmp_path):
    made = Heard(tmp_path, timeout=Timeout.parse("2"))
    yield made
    made.receiver.stop()


@pytest.fixture
def two_ranks(heard):
    words = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*words, str(number), heard.address]) for number in range(2)]
    yield ranks
    for rank in ranks:
        rank.kill()
        rank.wait()


def test_of_two_processes_the_one_that_hangs_is_named(heard, two_ranks, tmp_path):
    until(lambda: heard.hangs, 20)
    ((step, hang, stalled_s),) = heard.hangs
    assert step == os.environ.get("SLURM_STEP_ID", "")
    assert hang.text == "rank 1 on n2 in load() at <string>:10, while 1 rank waited in all_reduce"
    assert 2 <= stalled_s < 5
    heard.receiver._write()
    written = json.loads((tmp_path / "progress.json").read_text())
    assert [row["steps"] for row in written["ranks"]] == [5, 5]
    assert [row["pid"] for row in written["ranks"]] == [rank.pid for rank in two_ranks]
    assert written["stall"]["text"] == hang.text
    assert 0 < time.time() - written["stall"]["since"] < 10


def test_a_stopped_process_is_looked_at_and_named(heard, two_ranks):
    until(lambda: len(heard.receiver._tracks) == 2, 10)
    two_ranks[1].send_signal(signal.SIGSTOP)
    until(lambda: heard.hangs, 20)
    assert heard.looked == [1]
    assert heard.hangs[0][1].text.startswith("rank 1 on n2 stopped, last in ")


def test_a_full_or_missing_folder_is_no_concern(tmp_path, two_ranks, heard):  # noqa: ARG001 - they report
    until(lambda: len(heard.receiver._tracks) == 2, 10)
    heard.receiver._progress = tmp_path / "missing" / "progress.json"
    heard.receiver._write()


def test_without_any_report_the_log_says_so_once(tmp_path):
    heard = Heard(tmp_path, timeout=Timeout())
    heard.receiver.stop()
    (tmp_path / "0.begin").touch()
    for _ in range(3):
        heard.receiver._judge(time.monotonic() + 300)
    assert heard.lines == ["no rank's reports arrive here (UDP): a hang of this training will not be noticed"]


def test_the_longest_step_does_not_count_what_is_before_the_first(monkeypatch):
    counts = type(COUNTS)()
    now = iter([0.0, 100.0, 101.0, 103.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    counts.batch()
    counts.step()
    counts.batch()
    counts.step()
    assert (counts.steps, counts.batches, counts.longest_s) == (2, 2, 2.0)
