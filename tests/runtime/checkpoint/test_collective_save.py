"""Two ranks write one checkpoint: what is killed at any instant leaves the one before."""

import subprocess
import sys

KILLED = """
import os, random, signal, sys, time, torch
from datetime import timedelta
import torch.distributed as dist
from pathlib import Path
from slurmddp.runtime.checkpoint.store import INDEX, Store
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.checkpoint.sharded import CollectiveSave
from slurmddp.runtime.checkpoint.sharded import Share, load

SIZE = 20_000
folder, groups = Path(sys.argv[1]), Path(sys.argv[2])
store = Store(folder, identity="1", keep=2, check_owner=lambda: None, say=lambda line: sys.exit(line))


class Part:
    def state_dict(self): return {"a": torch.zeros(2 * SIZE), "step": 0}


def share(rank, step):
    piece = ("odd.a", (rank * SIZE,), torch.full((SIZE,), float(step)))
    frame = {"odd": {"a": torch.empty(2 * SIZE, device="meta"), "step": step}} if rank == 0 else {}
    return Share(frame=frame, divided={}, pieces=(piece,))


def write(rank, number, first, said):
    store_of_group = dist.FileStore(str(groups / str(number)), 2)
    dist.init_process_group("gloo", store=store_of_group, rank=rank, world_size=2, timeout=timedelta(seconds=20))
    who = Rank(rank=rank, world_size=2, local_rank=rank, local_world_size=2, node_rank=0, host="n1", launcher="srun",
        master_addr="127.0.0.1", master_port=1, store_port=2)
    joint = CollectiveSave({}, store, who, dist.group.WORLD)
    for step in range(first, first + 10_000):
        joint.write(step, {} if rank else {"state.pt": step}, share(rank, step), {})
        if rank == 0:
            os.write(said, b"%9d" % step)


def child(*words):
    process = os.fork()
    if not process:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            write(*words)
        finally:
            os._exit(1)
    return process


newest = 0
for number in range(12):
    read, said = os.pipe()
    children = [child(rank, number, newest + 1, said) for rank in range(2)]
    os.close(said)
    os.read(read, 9)
    time.sleep(random.Random(number).random() * 0.1)
    os.kill(children[number % 2], signal.SIGKILL)
    for process in children:
        os.waitpid(process, 0)
    durable = int((os.read(read, 1_000_000) or b"%d" % (newest + 1))[-9:])
    found = store.newest()
    assert durable <= found.step <= durable + 1, (durable, found.step)
    state = load(found.folder, store.load(found, INDEX), {"odd": Part()})["odd"]
    assert state["step"] == found.step and state["a"].tolist() == [found.step] * 2 * SIZE
    newest = found.step
print("kept through", number + 1, "kills,", newest, "checkpoints")
"""


def test_a_rank_killed_at_any_instant_leaves_what_was_called_durable(tmp_path):
    """The other one sees the loss, and hangs for nobody."""
    (tmp_path / "groups").mkdir()
    words = [sys.executable, "-c", KILLED, str(tmp_path / "checkpoints"), str(tmp_path / "groups")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kept through 12 kills, ")
