"""Three ranks on GPUs, one of which is killed at a random instant: whether the others have saved the step to the bit.

    python benchmarks/gpu_survivors.py [--cpu]

With fewer than three GPUs all ranks share the first one, by gloo, as NCCL refuses that. Then the host waits for each
all-reduce, and NCCL's watchdog is not seen. Each saved step is compared with a run in which no rank was killed. Three
ranks, because of two one alone is left, and on a GPU two must agree. torch raises an error where a step waits for the
GPU (`torch.cuda.set_sync_debug_mode`).
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from blocks import MARK, in_ms
from gpu_device import FAILED, Bench, Line, print_part
from rows import Row, seconds
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.runtime.checkpoint.store import Store
from slurmddp.runtime.checkpoint.survivors import Survivor, adopt
from slurmddp.runtime.checkpoint.training_state import MODEL, RANKS, STATE, TrainingState

WORLD = 3
PAIRS = 10
KEEPING = "keeping nothing"
LIMIT_S = 150
"""For ranks to end: NCCL's watchdog ends them 60 s after it has seen an error."""
CALM = "calm"
"""The run in which no rank is killed, and the folder's file of its digests."""


def digest(value: Any) -> str:
    """Return the SHA-256 of a state of tensors and plain values."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(part, dict):
            for key in part:
                found.update(repr(key).encode())
                add(part[key])
        elif isinstance(part, list | tuple):
            for item in part:
                add(item)
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()


def session_of(rank: int, device: torch.device, control: dist.ProcessGroup | None) -> Any:
    """Return what a `Survivor` asks of a session; `slurmddp.init` gives no two ranks the same GPU."""
    names = {"job": "17", "attempt": "0.0", "secret": "of this attempt", "run_dir": None}
    return SimpleNamespace(
        **names,
        rank=rank,
        is_main=not rank,
        world_size=WORLD,
        device=device,
        control=control,
        print=lambda *words: print(*words, file=sys.stderr, flush=True),
        list_ranks=lambda ranks: f"ranks {[*ranks]}",
    )


def store_of(folder: Path) -> Store:
    return Store(folder, identity="0" * 32, keep=2, check_owner=lambda: None, say=print)


class Trainee:
    """One rank of the training."""

    def __init__(self, rank: int, folder: Path, bench: Bench, width: int) -> None:
        gpus = torch.cuda.device_count() if bench.on_gpu else 0
        self.device = torch.device("cuda", rank if gpus >= WORLD else 0) if gpus else bench.device
        if bench.on_gpu:
            torch.cuda.set_device(self.device)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(mode=True)
        method = f"file://{folder}/rendezvous"
        dist.init_process_group("nccl" if gpus >= WORLD else "gloo", init_method=method, rank=rank, world_size=WORLD)
        torch.manual_seed(7)
        blocks = [part for _ in range(6) for part in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
        module = nn.Sequential(*blocks, nn.Dropout(0.1)).to(self.device)
        self.model = DistributedDataParallel(module, device_ids=[self.device.index] if gpus else None)
        torch.manual_seed(rank)
        random.seed(rank)
        np.random.seed(rank)  # noqa: NPY002 the global generator
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, 1000)
        shared: dict[str, Any] = {"optimizer": self.optimizer, "schedule": self.schedule}
        self.state = TrainingState(model=self.model, shared=shared, own={}, device=self.device)
        self.session = session_of(rank, self.device, dist.new_group(backend="gloo"))
        self.survivor = Survivor(self.state, self.session, store_of(folder))
        self._batches = torch.Generator().manual_seed(rank)
        self._width = width

    def step(self, number: int) -> None:
        """Take a step, of which the part from the optimizer on may not wait for the GPU."""
        batch = torch.randn(64, self._width, generator=self._batches).to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        if self.device.type == "cuda" and number > 3:  # noqa: PLR2004 the first ones make what is used later
            torch.cuda.set_sync_debug_mode("error")
        self.optimizer.step()
        self.schedule.step()
        self.survivor.keep(number)
        if self.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")

    def digests(self) -> dict[str, str]:
        """Return those of what a checkpoint has of this step."""
        common = [self.state.collect_files(0)[MODEL], self.optimizer.state_dict()["state"]]
        own = self.state.collect_own(with_buffers=False)["random"]
        return {"common": digest(common), "own": digest(own)}


def train(trainee: Trainee, folder: Path, steps: int) -> None:
    """Train, and note the digests of each step."""
    trainee.survivor.begin(0)
    found, began = {}, time.perf_counter()
    for number in range(1, steps + 1):
        trainee.step(number)
        found[number] = trainee.digests()
    trainee.survivor.end()
    rank, took_s = trainee.session.rank, time.perf_counter() - began
    (folder / f"{CALM}.{rank}").write_text(json.dumps({"took_s": took_s, "digests": found}))


def train_until_killed(trainee: Trainee, folder: Path, steps: int, kill_after_s: float) -> None:
    """Train until another rank is lost, or this one is killed, if it is to be; save as a survivor."""
    rank = trainee.session.rank
    trainee.survivor.begin(0)
    if kill_after_s:
        threading.Timer(kill_after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    number = 0
    try:
        for number in range(1, steps + 1):
            trainee.step(number)
        time.sleep(LIMIT_S if kill_after_s else 0)
        trainee.survivor.end()
    except RuntimeError:
        took_s = seconds(trainee.survivor.save)
        (folder / f"host.{rank}").write_text(json.dumps({"step": trainee.survivor._finished, "took_s": took_s}))  # noqa: SLF001
        if dist.get_backend() == "nccl" and (folder / "watch").exists():
            time.sleep(LIMIT_S)


def measure(trainee: Trainee, steps: int) -> None:
    """Say the seconds of each two blocks: of a step with what a survivor needs, and without."""
    for pair in range(PAIRS + 1):
        took_s = {}
        for is_on in (pair % 2 == 0, pair % 2 == 1):
            if is_on:
                trainee.survivor.begin(0)
            begin = time.perf_counter()
            for number in range(1, steps + 1):
                trainee.step(number)
            if trainee.device.type == "cuda":
                torch.cuda.synchronize()
            took_s[is_on] = (time.perf_counter() - begin) / steps
            trainee.survivor.end()
        if trainee.session.is_main:
            print(MARK, took_s[True], took_s[False], flush=True)


def start(folder: Path, bench: Bench, *words: object, killed: int = -1, after_s: float = 0.0) -> list[Any]:
    """Start all ranks of a training."""
    flags = [] if bench.on_gpu else ["--cpu"]
    environment = {**os.environ, "SLURMDDP_GPU_SURVIVORS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    commands = [
        [__file__, "rank", str(rank), str(folder), *map(str, words), str(after_s if rank == killed else 0.0), *flags]
        for rank in range(WORLD)
    ]
    return [
        subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)
        for command in commands
    ]


def end(processes: list[Any]) -> tuple[list[int], str]:
    """Wait for the ranks; return how they ended, and what rank 0 printed. Those that do not end are killed."""
    until, printed = time.monotonic() + LIMIT_S, ""
    for process in processes:
        try:
            out, _ = process.communicate(timeout=max(until - time.monotonic(), 1))
            printed = printed or out
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    return [process.returncode for process in processes], printed


def run(folder: Path, bench: Bench, *words: object) -> str:
    """Run all ranks to a good end; return what rank 0 printed."""
    ends, printed = end(start(folder, bench, *words))
    if any(ends):
        raise SystemExit(f"the ranks ended with {ends}")
    return printed


def kill_one(folder: Path, bench: Bench, calm: list[Any], sizes: tuple[int, int], *, watch: bool) -> tuple[str, Line]:
    """Kill a rank at a random instant; return in a word what came of it, and a line about it."""
    if watch:
        (folder / "watch").touch()
    killed, after_s = random.randrange(WORLD), calm[0]["took_s"] * random.uniform(0.1, 0.7)  # noqa: S311 no secret
    began = time.monotonic()
    ends, _ = end(start(folder, bench, "killed", *sizes, killed=killed, after_s=after_s))
    if ends[killed] != -signal.SIGKILL:
        return "not killed", f"  rank {killed} was not killed: the ranks ended with {ends}"
    host = [json.loads(path.read_text()) for path in folder.glob("host.*")]
    store = store_of(folder)
    adopt(store, session_of(0, torch.device("cpu"), None))
    saved = store.newest()
    seen = f"rank {killed} killed after {after_s:.3f} s; the hosts were at {[one['step'] for one in host]}; ends {ends}"
    if watch:
        seen += f", {time.monotonic() - began:.0f} s after the start"
    if saved is None:
        return "older", f"  {seen}; the older checkpoint counts"
    parts, states = store.load(saved, STATE)["parts"], store.load(saved, RANKS)
    common = digest([store.load(saved, MODEL), parts["optimizer"]["state"]])
    wanted = [one["digests"][str(saved.step)] for one in calm]
    equal = common == wanted[0]["common"] and all(
        digest(state["random"]) == one["own"] for state, one in zip(states, wanted, strict=True)
    )
    lost = max(one["step"] for one in host) - saved.step
    held_s = max(one["took_s"] for one in host)
    if not equal:
        return "differ", f"{FAILED}: {seen}; step {saved.step} was saved, with other bits"
    return f"equal bits, {lost} behind the host", f"  {seen}; step {saved.step} saved in {held_s:.2f} s, equal bits"


def lines(bench: Bench) -> Iterator[Line]:
    gpus = torch.cuda.device_count() if bench.on_gpu else 0
    backend = "NCCL" if gpus >= WORLD else "gloo"
    sizes = bench.pick((1024, 200), (32, 60))
    with tempfile.TemporaryDirectory(dir=".") as name:
        top = Path(name).resolve()
        folders = iter(top / str(number) for number in range(1000))

        def new() -> Path:
            folder = next(folders)
            folder.mkdir()
            return folder

        printed = run(new(), bench, "cost", *sizes)
        pairs = [line.split()[1:] for line in printed.splitlines() if line.startswith(MARK)][1:]
        ours, without = (in_ms(tuple(map(float, side))) for side in zip(*pairs, strict=True))
        what = f"a step with the state for survivors, {WORLD} ranks, {backend}"
        yield Row(name=what, unit="ms", ours=ours, peers={KEEPING: without}, wanted=f"at most 1.005 of {KEEPING}")
        folder = new()
        run(folder, bench, CALM, *sizes)
        calm = [json.loads((folder / f"{CALM}.{rank}").read_text()) for rank in range(WORLD)]
        ended: Counter[str] = Counter()
        for number in range(bench.pick(10, 3)):
            word, line = kill_one(new(), bench, calm, sizes, watch=backend == "NCCL" and not number)
            ended[word] += 1
            yield line
    yield f"  {sum(ended.values())} kills: {', '.join(f'{count} {word}' for word, count in sorted(ended.items()))}"
    if backend != "NCCL":
        yield f"  NCCL's watchdog: not seen: NCCL wants a GPU for each of {WORLD} ranks, and there are {gpus}"


def rank_main(number: str, name: str, what: str, width: str, steps: str, after_s: str, *flags: str) -> None:
    """Be a rank, and end without destructors."""
    bench = Bench(torch.device("cpu" if "--cpu" in flags else "cuda"))
    folder = Path(name)
    trainee = Trainee(int(number), folder, bench, int(width))
    if what == CALM:
        train(trainee, folder, int(steps))
    elif what == "cost":
        measure(trainee, 10)
    else:
        train_until_killed(trainee, folder, int(steps), float(after_s))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    rank_main(*sys.argv[2:]) if sys.argv[1:2] == ["rank"] else print_part(lines)
