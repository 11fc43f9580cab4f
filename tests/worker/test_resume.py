"""A training that is stopped, killed or moved ends with the bits of one that was left alone."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from polling import until

from slurmddp.runs.layout import RunDir

PROGRAM = str(Path(__file__).parent.parent / "programs" / "train.py")
pytestmark = pytest.mark.preloaded
TOTAL, STEP_S, EVERY = 24, 0.05, 5
WORDS = (PROGRAM, str(TOTAL), str(STEP_S), str(EVERY))


def steps(run, rank: int = 0) -> list[str]:
    """What that rank noted of each step it took: its number and the samples."""
    path = run.path / f"steps.{rank}"
    return path.read_text().splitlines() if path.exists() else []


def ranks_of(launcher) -> list[int]:
    """The pids of the ranks that a fork launcher has made."""
    return list(map(int, Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()))


def same_model(first, second) -> bool:
    models = [torch.load(run.model, weights_only=True) for run in (first, second)]
    return models[0].keys() == models[1].keys() and all(
        torch.equal(models[0][name], models[1][name]) for name in models[0]
    )


def test_stopped_and_killed_in_mid_epoch_it_ends_with_the_same_bits(start):
    """A notice repeats no step, kill -9 at most those since the last checkpoint."""
    count = 4
    calm = start("fork", count, *WORDS).wait(300)
    assert calm.statuses == [0]
    run, done = None, 0
    for number, (disturb, wanted) in enumerate(
        [(signal.SIGTERM, 75), (signal.SIGKILL, 137), (signal.SIGUSR2, 75), (None, 0)]
    ):
        going = start("fork", count, *WORDS, run=run, attempt=f"{number}.0")
        run = going.run
        if disturb:
            until(lambda run=run, before=done: len(steps(run)) >= before + 4)
            going.processes[0].send_signal(disturb) if wanted == 75 else os.kill(
                ranks_of(going.processes[0])[1], disturb
            )
        ended = going.wait(300)
        assert ended.statuses == [wanted], ended.stdout + ended.log(0)
        done = len(steps(run))
    assert same_model(calm.run, run)
    missing = [set(steps(calm.run, rank)) ^ set(steps(run, rank)) for rank in range(count)]
    assert sum(map(len, missing)) <= 1, "the killed rank may have finished a step without writing its line"
    assert TOTAL <= done <= TOTAL + EVERY
    resumed = [event["step"] for event in ended.events("resume")]
    stopped = [int(record.split("step ")[1].split()[0]) for record in stops(run)]
    assert (resumed[0], resumed[2]) == tuple(stopped), "no step was taken twice after a notice"


def stops(run) -> list[str]:
    return [text for path in sorted(run.logs.glob("17/*/0.end")) if (text := path.read_text()).startswith("75")]


def family_of(pid: int) -> list[int]:
    """The process and all that it has started, directly or not."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in family_of(int(child)))]


@pytest.mark.parametrize(("method", "others"), [("fork", 0), ("forkserver", 2)])
def test_a_loaders_workers_do_not_lose_a_step_to_a_notice(start, method, others):
    """The others are the fork server and the tracker of shared memory."""
    going = start("srun", 1, *WORDS, WORKERS="2", METHOD=method)
    until(lambda: len(steps(going.run)) >= 4)
    family = family_of(going.processes[0].pid)
    assert len(family) == 1 + 2 + others
    for pid in family:
        os.kill(pid, signal.SIGTERM)
    ended = going.wait()
    assert ended.statuses == [75]
    again = start("srun", 1, *WORDS, run=going.run, attempt="1.0", WORKERS="2").wait()
    assert again.statuses == [0]
    assert [line.split()[0] for line in steps(going.run)] == [str(step) for step in range(TOTAL)]


def test_other_numbers_of_ranks_see_each_sample_of_each_epoch_once(start):
    """Four ranks, then two, then four; 203 samples and a step of 16 or 8 of them: always in mid-epoch."""
    run = None
    for number, (count, total) in enumerate([(4, 9), (2, 20), (4, 39)]):
        going = start("fork", count, PROGRAM, "39", str(STEP_S), "100", run=run, attempt=f"{number}.0")
        run = going.run
        if total < 39:
            until(lambda run=run, total=total: len(steps(run)) >= total)
            going.processes[0].send_signal(signal.SIGUSR2)
        assert going.wait(300).statuses == [0 if total == 39 else 75]
    stream = [list(map(int, line.split()[1:])) for rank in range(4) for line in steps(run, rank)]
    taken = sorted(index for share in stream for index in share)
    whole, rest = divmod(len(taken), 203)
    assert whole >= 2
    counts = torch.bincount(torch.tensor(taken), minlength=203)
    assert int(counts.min()) == whole
    assert int(counts.max()) == whole + (rest > 0)
    assert int((counts == whole + 1).sum()) == rest


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a disk of 400 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_without_any_room_does_not_end_the_training(start, small_disk, tmp_path):
    """Not even for a line of the events."""
    filling = tmp_path / "filling.py"
    filling.write_text(
        "import os, runpy, sys\nsys.argv = sys.argv[1:]\n"
        "def fill():\n"
        "    try:\n"
        "        with open(os.environ['SLURMDDP_RUN_DIR'] + '/full', 'wb') as file:\n"
        "            while True: file.write(b'x' * 100); file.flush()\n"
        "    except OSError: pass\n"
        "fill()\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    program = tmp_path / "own.py"
    program.write_text(
        "import torch, slurmddp\nwith slurmddp.init() as ddp:\n"
        "    place = ddp.run_dir.path / 'c'\n"
        "    for step in slurmddp.Checkpointer(model=torch.nn.Linear(99, 99), every_steps=2, folder=place"
        ").steps(7): pass\nprint('all done', flush=True)\n"
    )
    run = RunDir(small_disk / "run")
    (run.path / "c").mkdir(parents=True)
    (run.path / "c" / "identity").write_text("0" * 32)
    ended = start("srun", 1, str(filling), str(program), run=run, log=tmp_path / "log").wait()
    assert "all done" in (tmp_path / "log").read_text()
    assert ended.statuses[0] in (0, 76)


def test_who_is_not_the_owner_any_more_writes_nothing(start):
    going = start("srun", 2, *WORDS, SLURMDDP_OWNER="here 17 0.0", run=None)
    going.run.owner.write_text("here 17 0.0\n")
    until(lambda: any(going.run.checkpoints.glob("step-*")))
    before = sorted(path.name for path in going.run.checkpoints.iterdir())
    going.run.owner.write_text("here 17 1.0\n")
    ended = going.wait()
    assert ended.statuses == [0, 0], "the srun of a zombie must not end the step of this number"
    assert ended.record(0).startswith("78 rank 0 on n1: ")
    assert set(before) >= {path.name for path in ended.run.checkpoints.iterdir()} - {"step-000000005"}
    assert not ended.run.model.exists()


def test_another_runs_checkpoint_is_refused(start, tmp_path):
    first = start("srun", 1, PROGRAM, "2", "0", "1").wait()
    second = start("srun", 1, PROGRAM, "1", "0", "1").wait()
    (second.run.checkpoints / "step-000000001").rename(tmp_path / "aside")
    (first.run.checkpoints / "step-000000002").rename(second.run.checkpoints / "step-000000002")
    ended = start("srun", 2, *WORDS, run=second.run, attempt="1.0").wait()
    assert ended.statuses == [77, 76]
    assert "step-000000002" in ended.record(0)


HEAD = """
import os, sys, time, torch, slurmddp
from torch import nn
model = nn.Linear(4, 2)
"""


ODD = """
class Odd:
    def state_dict(self): return {"when": {"then": print}}
    def load_state_dict(self, state): pass
"""
INIT = "with slurmddp.init():\n    "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slurmddp.Checkpointer(model=model)", "no session; put the training into `with slurmddp.init() as ddp:`\n"),
        (ODD + INIT + "slurmddp.Checkpointer(model=model, odd=Odd())", "odd.when.then"),
        (INIT + "next(slurmddp.Checkpointer(model=model).steps(epochs=1))", "give total, or epochs and a slurmddp.S"),
        ("with slurmddp.init(), slurmddp.init(): pass", "already in use"),
        (INIT + "for _ in range(2): slurmddp.Checkpointer(model=model)", "give this one a folder="),
        (INIT + "slurmddp.Checkpointer(model=model, keep=0)", "both must be at least 1"),
        (INIT + "slurmddp.Checkpointer(model=model, every_steps=0)", "both must be at least 1"),
    ],
)
def test_a_wrong_use_is_refused_at_once(alone, script, text, words):
    record = alone(script(text)).record(0)
    assert record.startswith("77 rank 0 on n1: ") and words in record


def test_a_state_that_becomes_no_plain_data_is_named_when_it_would_be_saved(alone, script):
    """Else the checkpoint would be written, and could not be read."""
    text = """
import numpy
class Odd:
    value = 1.0
    def state_dict(self): return {"best": self.value}
    def load_state_dict(self, state): pass
with slurmddp.init():
    odd = Odd()
    for step in slurmddp.Checkpointer(model=model, odd=odd, every_steps=2).steps(6):
        if step == 2: odd.value = numpy.float64(2)
"""
    ended = alone(script(text))
    assert ended.statuses == [77]
    assert "parts.odd.best is a numpy.float64" in ended.record(0)
    assert any(ended.run.checkpoints.glob("step-000000002"))


def test_a_notice_after_the_loop_brings_the_program_back_to_its_end_alone(start, script):
    text = """
with slurmddp.init() as ddp:
    run = slurmddp.Checkpointer(model=model)
    for step in run.steps(3): print("step", step, flush=True)
    print("after", flush=True)
    if os.environ["SLURMDDP_ATTEMPT"] == "0.0": time.sleep(60)
"""
    path = script(text)
    going = start("srun", 1, path)
    going.until_said("after")
    going.processes[0].send_signal(signal.SIGTERM)
    assert going.wait().statuses == [75]
    again = start("srun", 1, path, run=going.run, attempt="1.0").wait()
    assert again.statuses == [0]
    assert "step 0" not in again.log(0)
    assert "after" in again.log(0)


FAILS = """
import torch.distributed as dist
from slurmddp.runtime.rank_process import this_process
failing = sys.argv[1].split(",")
with slurmddp.init() as ddp:
    for step in slurmddp.Checkpointer(model=model, every_steps=2, own={}).steps(1000):
        print("step", step, flush=True)
        time.sleep(0.05)
        if str(ddp.rank) in failing and this_process().signals.stop_requested: raise ERROR
        dist.all_reduce(torch.ones(1))
"""


@pytest.mark.parametrize(
    ("failing", "error", "cause"),
    [
        ("0", "ConnectionResetError('Connection lost')", "ConnectionResetError: Connection lost"),
        ("1", "BrokenPipeError('no decoder')", "rank 1 on n1: BrokenPipeError: no decoder"),
        ("0,1", "ValueError('the decoder ended with -15')", "ValueError: the decoder ended with -15"),
    ],
)
def test_a_failure_in_the_loop_after_a_notice_is_its_consequence(start, script, failing, error, cause):
    """As when the notice ends a program that a rank has started."""
    going = start("srun", 2, script(FAILS.replace("ERROR", error)), failing)
    going.until_said("step 7")
    going.signal(signal.SIGTERM)
    ended = going.wait()
    assert ended.statuses == [75, 75], ended.log(0) + ended.log(1)
    (saved,) = re.findall(
        rf"75 rank 0 on n1: stop signal received \(signal\); the newest checkpoint is of step (\d+) \({cause}\)",
        ended.record(0),
    )
    assert int(saved) == max(event["step"] for event in ended.events("checkpoint")) >= 6


@pytest.mark.parametrize("error", ["ConnectionResetError('Connection lost')", "RankError('not to be saved')"])
def test_a_failure_in_the_loop_without_a_notice_to_all_is_none(start, script, error):
    """When a rank has failed, srun sends SIGTERM to the others; what slurmddp refuses, it refuses in each attempt."""
    text = FAILS.replace("ERROR", error).replace(
        "import torch", "from slurmddp.errors import RankError\nimport torch", 1
    )
    going = start("srun", 2, script(text), "0")
    going.until_said("step 3")
    going.processes[0].send_signal(signal.SIGTERM)
    if error.startswith("Connection"):
        going.processes[1].kill()
    ended = going.wait()
    assert ended.statuses[0] == (76 if error.startswith("Connection") else 77)
    assert "stop signal received" not in ended.record(0) or "did not answer" in ended.record(0)


MIXED = str(Path(PROGRAM).with_name("mixed.py"))


def test_nothing_that_a_training_has_is_missed(start):
    """Stopped before the save by hand, in the step of its end, and in the second loop; on three ranks order counts."""
    calm = start("fork", 3, MIXED, "-1").wait()
    assert calm.statuses == [0], calm.log(0)
    wanted = [end_of(calm.run, rank) for rank in range(3)]
    for stops in ((3, -1), (5, 8, -1)):
        run = None
        for number, stop_at in enumerate(stops):
            ended = start("fork", 3, MIXED, str(stop_at), run=run, attempt=f"{number}.0").wait()
            run = ended.run
            assert ended.statuses == [0 if stop_at < 0 else 75], ended.log(0)
        found = [end_of(run, rank) for rank in range(3)]
        assert [differing(*pair) for pair in zip(wanted, found, strict=True)] == [[], [], []], stops


def end_of(run, rank: int) -> dict[str, torch.Tensor]:
    """What that rank had at its end, by the number of the model and the name in it."""
    states = torch.load(run.path / f"end.{rank}", weights_only=True)
    return {f"{number}.{name}": value for number, state in enumerate(states) for name, value in state.items()}


def differing(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in before if not torch.equal(before[name], after[name])]


def test_a_part_that_is_frozen_at_first_is_no_obstacle(alone, script):
    text = """
with slurmddp.init():
    net, second = (nn.parallel.DistributedDataParallel(nn.Linear(4, 2)) for _ in range(2))
    second.requires_grad_(False)
    for step in slurmddp.Checkpointer(model=net, second=second).steps(2): net(torch.ones(1, 4)).sum().backward()
"""
    assert alone(script(text)).statuses == [0]


def test_after_a_break_a_notice_ends_the_program_at_once(start, script):
    text = """
with slurmddp.init():
    for step in slurmddp.Checkpointer(model=model).steps(100):
        if step == 3: break
    print("broke", flush=True)
    time.sleep(60)
"""
    going = start("srun", 1, script(text))
    going.until_said("broke")
    going.processes[0].send_signal(signal.SIGTERM)
    assert going.wait().statuses == [75]


def test_a_lost_peer_is_on_record_at_once_whatever_srun_sends(start):
    """TERM follows the loss of a rank; the loop's own error is the answer, not a wait for who is silent."""
    going = start("srun", 2, *WORDS)
    until(lambda: len(steps(going.run)) >= 4)
    going.processes[1].kill()
    going.processes[0].send_signal(signal.SIGTERM)
    ended = going.wait()
    assert ended.statuses == [76, -signal.SIGKILL]
    assert "RuntimeError" in ended.record(0)


def test_groups_that_the_program_destroys_do_not_spoil_the_end(start, script):
    text = "import torch.distributed as dist\nwith slurmddp.init():\n    dist.barrier(); dist.destroy_process_group()"
    assert start("srun", 2, script(text)).wait().statuses == [0, 0]


OWN_STATES = """
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)
    def forward(self, inputs): return self.last(self.norm(self.first(inputs)).relu())
with slurmddp.init() as ddp:
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net(), broadcast_buffers=False)
    state = power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3, min_compression_rate=1)
    net.register_comm_hook(state, power.powerSGD_hook)
    torch.manual_seed(ddp.rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    run = slurmddp.Checkpointer(model=net, optimizer=optimizer)
    stop_at = int(os.environ.get("STOP_AT", "-1"))
    for step in run.steps(12):
        if run.step == stop_at: os.kill(os.getpid(), 12); time.sleep(0.2)
        optimizer.zero_grad()
        net(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    torch.save([net.module.state_dict()], f"{os.environ['SLURMDDP_RUN_DIR']}/end.{ddp.rank}")
"""


def test_each_ranks_own_state_is_kept(start, script):
    """PowerSGD's errors, buffers that nobody synchronises, and randomness differ from rank to rank."""
    path = script(OWN_STATES)
    calm = start("fork", 3, path).wait()
    first = start("fork", 3, path, STOP_AT="5")
    stopped = first.wait()
    assert (calm.statuses, stopped.statuses) == ([0], [75]), stopped.log(0)
    ended = start("fork", 3, path, run=first.run, attempt="1.0").wait()
    assert ended.statuses == [0], ended.log(0)
    wanted, found = ([end_of(run, rank) for rank in range(3)] for run in (calm.run, ended.run))
    assert [differing(*pair) for pair in zip(wanted, found, strict=True)] == [[], [], []]
    assert not torch.equal(wanted[0]["0.norm.running_mean"], wanted[1]["0.norm.running_mean"])
