"""What a script sees is what plain torchrun shows it, whoever starts its ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp.runs.layout import RunDir

PROBE = """
import atexit, json, os, sys
rank = int(os.environ["RANK"])
if sys.argv[1] == "fail":
    if rank == 0: raise ValueError("boom")
    sys.exit("in words")
seen = {name: value for name, value in os.environ.items() if name.startswith(
    ("RANK", "LOCAL_", "WORLD_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "SLURM_PROCID"))}
line = [sys.argv[1:], __name__, __file__, sys.path[0], sys.stdin.read(), seen]
open(f"{rank}.seen", "w").write(json.dumps(line))
atexit.register(lambda: open(f"{rank}.seen", "a").write("\\nexit handler"))
if rank: sys.exit(0)
"""
WORDS = ["well", "a b", "$$", "${local_rank}", "", "-m"]
OWN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "ROLE_NAME"}
"""Names that every launcher sets, each to a value of its own."""
AGENTS = {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""Of torchrun's agent itself, and only there."""


def torchrun(words: list[str], module: str = "torch.distributed.run") -> list[str]:
    agent = ["--standalone", "--local-addr=localhost", "--nproc-per-node=2", "--log-dir=torchrun"]
    return [sys.executable, "-P", "-m", module, *agent, *words]


def worker(words: list[str]) -> list[str]:
    return [sys.executable, "-P", "-u", "-m", "slurmddp.worker", *words]


def dollars(words: list[str]) -> list[str]:
    """Return words as torchrun wants them; its macros take `$`."""
    return [word.replace("$", "$$") for word in words]


def commands(make, launcher: str, words: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """Return the processes to start, and their variables."""
    run = make.of_run(RunDir(Path.cwd() / "run"), launcher)
    if launcher == "plain":
        return [(torchrun(dollars(words)), {})]
    if launcher == "run":
        return [([sys.executable, "-m", "slurmddp", "run", "--ntasks-per-node=2", "--name=x", *words], {})]
    if launcher == "torchrun":
        agent = torchrun(["--no-python", *worker(dollars(words))], "slurmddp.runtime.launch.torchrun")
        del run["SLURMDDP_STORE_PORT"]
        return [(agent, run | make.of_task(0, 1) | {"SLURMDDP_RANK_LOGS": "all"})]
    if launcher == "fork":
        fork = [sys.executable, "-P", "-u", "-m", "slurmddp.runtime.launch.fork", "--nproc-per-node=2", "--", *words]
        return [(fork, run | make.of_task(0, 1))]
    return [(worker(words), run | make.of_task(rank, 2)) for rank in range(2)]


def play(make, launcher: str, words: list[str]) -> tuple[list[int], str]:
    """Run the probe to its end in the working folder; return the statuses, and what was printed."""
    processes = [
        subprocess.Popen(
            command,
            env=make.clean_environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, variables in commands(make, launcher, words)
    ]
    printed = "".join(process.communicate(timeout=300)[0] for process in processes)
    return [process.returncode for process in processes], printed


@pytest.fixture(scope="module")
def plain(make, tmp_path_factory):
    """Return what each rank sees under plain torchrun."""
    return seen(make, "plain", tmp_path_factory.mktemp("plain"))


def seen(make, launcher: str, folder: Path) -> list[list]:
    (folder / "train.py").write_text(PROBE)
    before = Path.cwd()
    os.chdir(folder)
    try:
        statuses, printed = play(make, launcher, ["train.py", *WORDS])
    finally:
        os.chdir(before)
    assert set(statuses) == {0}, printed
    texts = [(folder / f"{rank}.seen").read_text() for rank in range(2)]
    assert all(text.endswith("\nexit handler") for text in texts)
    return [json.loads(text.removesuffix("\nexit handler")) for text in texts]


@pytest.mark.parametrize("launcher", ["run", "srun", "fork", "torchrun"])
def test_a_script_sees_the_same(make, plain, launcher, tmp_path):
    for rank, (wanted, got) in enumerate(zip(plain, seen(make, launcher, tmp_path), strict=True)):
        *words, variables = got
        words = [str(word).replace(str(tmp_path), "HERE") for word in words]
        folder = str(Path(wanted[2]).parent)
        assert words == [str(word).replace(folder, "HERE") for word in wanted[:-1]]
        names = set(variables) - AGENTS - {"TORCHELASTIC_ERROR_FILE"}
        if launcher in ("srun", "fork", "torchrun"):
            assert variables.pop("SLURM_PROCID") == str(rank)
            names -= {"SLURM_PROCID"}
            assert launcher == "torchrun" or not AGENTS & set(variables), "there is no agent"
        assert names == set(wanted[-1]) - AGENTS - {"TORCHELASTIC_ERROR_FILE"}
        assert {name: variables[name] for name in names - OWN} == {name: wanted[-1][name] for name in names - OWN}


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_a_script_fails_the_same(make, launcher, tmp_path, monkeypatch):
    """The traceback is the script's own, in the rank's log and in its error file."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROBE)
    _, printed = play(make, launcher, ["train.py", "fail"])
    run = RunDir(tmp_path / "run")
    logs = printed if launcher == "srun" else run.rank_log("17", "0.0", 0).read_text()
    assert 'File "train.py", line 5, in <module>\n' in logs or '/train.py", line 5, in <module>\n' in logs
    assert "slurmddp/worker/run_script.py" not in logs.partition("ValueError: boom")[0]
    message = json.loads(run.rank_error("17", "0.0", 0).read_text())["message"]["message"]
    assert message == "ValueError: boom"
    assert run.rank_record("17", "0.0", 0).read_text().startswith("77 rank 0 on n1: ValueError: boom")
