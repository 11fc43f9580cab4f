"""How soon 2 x 8 ranks have taken their first step where each metadata call on the environment takes 1 ms more.

    python benchmarks/staged_start.py

A library (slow_metadata.c, compiled here) makes the environment and its base interpreter slow, and counts the calls.
Measured is the time from the start of the batch script to the end of the first step of all ranks, by srun, fork and
torchrun from the slow environment, and by fork from a copy: with its unpacking, and kept. Wanted is a staged start, the
copy kept, in at most 0.1 of srun's time.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from slurmddp import sandbox

RANKS = 16
HERE = Path(__file__).parent
PACKAGES = (
    "torch torchgen functorch numpy numpy.libs sympy mpmath networkx jinja2 markupsafe fsspec msgspec click filelock"
)
STARTS = {
    "srun": ["--launcher=srun"],
    "fork": ["--launcher=fork"],
    "torchrun": ["--launcher=torchrun"],
    "fork, staged": ["--launcher=fork", "--stage-env={nodes}"],
    "fork, kept": ["--launcher=fork", "--stage-env={nodes}"],
}
PROGRAM = """
import struct, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.randint(10, (8,))).backward()
optimizer.step()
dist.barrier()
if dist.get_rank() == 0:
    calls = struct.unpack("l", open(sys.argv[1], "rb").read())[0]
    print(f"first step at {time.time()} after {calls} calls, in {sys.prefix}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def make_environment(folder: Path) -> Path:
    """Make a virtual environment with torch and slurmddp, of hard links to the packages of this one."""
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    ours, own = (Path(next(path.glob("lib/python3*/site-packages"))) for path in (Path(sys.prefix), environment))
    for name in PACKAGES.split():
        if (ours / name).is_dir():
            shutil.copytree(ours / name, own / name, copy_function=os.link, symlinks=True)
    os.link(ours / "typing_extensions.py", own / "typing_extensions.py")
    shutil.copytree(HERE.parent / "slurmddp", own / "slurmddp")
    return environment


def start(name: str, folder: Path, environment: Path, slow: Path, environ: dict[str, str]) -> tuple[float, float]:
    """Submit the program; return the seconds to the first step, and the metadata calls of a rank until then."""
    run_name, count = re.sub(r"\W+", "-", name), folder / "count"
    count.write_bytes(struct.pack("l", 0))
    base = Path(os.path.realpath(environment / "bin" / "python3")).parents[1]
    setup = f"export SLOW_BELOW={environment}:{base} SLOW_COUNT={count} LD_PRELOAD={slow}; echo begin at $(date +%s.%N)"
    words = [word.format(nodes=folder / "nodes") for word in STARTS[name]]
    command = [Path(sys.executable).parent / "slurmddp", "submit", "--nodes=2", "--gpus-per-node=8", "--wait", *words]
    command += [f"--name={run_name}", f"--python={environment}/bin/python3", "--setup", setup, "train.py", count]
    done = subprocess.run(command, cwd=folder, env=environ, check=False, capture_output=True, text=True)
    log = "".join(file.read_text() for file in folder.glob(f"jobs/{run_name}/logs/*.out"))
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}\n{log}")
    for line in done.stderr.splitlines() + log.splitlines():
        if "packed" in line or "environment" in line:
            print(f"  {line.replace(str(folder), '.')}", flush=True)
    said = next(folder.glob(f"jobs/{run_name}/logs/*/0.0/0.out")).read_text()
    step, calls = re.findall(r"first step at (\S+) after (\d+) calls", said)[0]
    return float(step) - float(log.split("begin at ")[1].split()[0]), int(calls) / RANKS


def main() -> None:
    plan = sandbox.Plan(name=f"staged-{os.getpid()}", nodes=2, gpus_per_node=8, cpus_per_node=16)
    cluster = sandbox.up(plan, die_with_parent=True)
    environ = {**os.environ, **cluster.environment(), "OMP_NUM_THREADS": "1"}
    results = {}
    try:
        with tempfile.TemporaryDirectory(dir=sys.prefix, prefix="staged-") as name:
            folder = Path(name)
            slow = folder / "slow.so"
            subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", slow, HERE / "slow_metadata.c", "-ldl"], check=True)
            (folder / "train.py").write_text(PROGRAM)
            environment = make_environment(folder)
            for way in STARTS:
                results[way] = start(way, folder, environment, slow, environ)
    finally:
        cluster.down()
    print("start          metadata calls a rank   first step")
    for way, (seconds, calls) in results.items():
        print(f"{way:14} {calls:21.0f} {seconds:9.1f} s")
    ratio = results["fork, kept"][0] / results["srun"][0]
    print(f"first step by fork from a kept copy: {ratio:.3f} times srun from the slow environment (2 x 8 ranks)")


if __name__ == "__main__":
    main()
