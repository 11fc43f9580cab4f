"""What stands around a failure in a log does not change what is said of it.

Each known log is changed: words of launchers, trackers and dying children behind it, once and many times; prose or
steps before it; prefixes, colours, line ends. Each log gets some of the changes, others than its neighbours; with
SLURMDDP_TESTS_SOAK=1 it gets all.
"""

import os
import re
import tomllib
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest

from slurmddp.diagnose.evidence import read_log_evidence
from slurmddp.diagnose.rule_types import UNKNOWN
from slurmddp.diagnose.verdict import judge
from slurmddp.slurm.job_info import JobInfo

FIXTURES = Path(__file__).parent / "fixtures"
TEARDOWNS = tomllib.loads((FIXTURES / "teardown.toml").read_text())["teardown"]
STEPS = "".join(f"step {step}: loss {3 - step / 100:.3f}\n" for step in range(200))
PROSE = """Note: if the job is killed (out of memory), lower the batch size; see the FAQ.
Possible reasons for a hang are: a rank that died, a wrong NCCL_SOCKET_IFNAME, or a firewall.
WARNING: checkpoints older than 7 days are removed at the end.
If you see 'CUDA out of memory', try --gradient-checkpointing.
"""
ISSUE = """### Describe the bug
Training stops after a while on 2 nodes. First I suspected CUDA out of memory, but nvidia-smi shows 20 GB free.
Before that I got `RuntimeError: Address already in use`, which another port has cured.
We have also tried NCCL_P2P_DISABLE=1, after which a rank was killed by signal 9.

### Logs
"""
START = """Job 16 starts on n[1-2] at Wed Mar  4 10:00:00 CET 2026
Loading the data of /data/train
"""
EXITED = "srun: error: n1: task 0: Exited with exit code 1\n"
HEALTHY_JOB = f"""{START}{STEPS}saved the model to model.pt
Training finished successfully.
Job 16 ends at Wed Mar  4 11:00:00 CET 2026
"""
PREFIXES = {
    "torch": "[rank1]: ",
    "torchrun": "[default1]:",
    "srun": "1: ",
    "mpirun": "[1,1]<stderr>:",
    "a clock": "2026-03-04T12:00:00.123456Z ",
    "a host": "n1: ",
    "Ray": "(RayTrainWorker pid=2113, ip=10.0.0.5) ",
    "Ray in colours": "\x1b[36m(RayTrainWorker pid=2113, ip=10.0.0.5)\x1b[0m ",
}
ENDS = frozenset(
    {"rank-killed", "segfault", "rank-aborted", "bus-error", "rank-terminated", "exit-status", "last-words"}
)
"""Causes that are ends themselves: a launcher that reports another end contradicts them."""
MANY = 50
SHARE = 1 if os.environ.get("SLURMDDP_TESTS_SOAK") == "1" else 12
"""Each log gets one of so many changes."""


def close(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def each_line(text: str, change: Callable[[str], str]) -> str:
    return "".join(f"{change(line)}\n" for line in text.splitlines())


def mix_with_steps(text: str) -> str:
    """Return a log with the lines of a healthy rank between its own, behind the same label."""
    lines, steps = text.splitlines(), cycle(STEPS.splitlines())
    labels = (re.match(r"(?: *\d+: )?", line)[0] for line in lines[1:])
    return (
        "".join(close(f"{line}\n{label}{next(steps)}") for line, label in zip(lines, labels, strict=False)) + lines[-1]
    )


def make_changes() -> dict[str, Callable[[str], str]]:
    found: dict[str, Callable[[str], str]] = {}
    for one in TEARDOWNS:
        for times in (1, MANY):
            found[f"{one['by']} behind, {times}"] = lambda text, more=one["text"] * times: close(text) + more
    everything = "".join(one["text"] for one in TEARDOWNS)
    found |= {f"all behind, {times}": lambda text, more=everything * times: close(text) + more for times in (1, MANY)}
    found["prose before"] = lambda text: PROSE + text
    found["steps before"] = lambda text: STEPS + text
    found["prose and steps before"] = lambda text: STEPS + PROSE + STEPS + text
    found["an issue's text before"] = lambda text: ISSUE + text
    found["a healthy job before"] = lambda text: HEALTHY_JOB + START + text
    found["CR LF"] = lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n")
    found["colours"] = lambda text: each_line(text, "\x1b[31m{}\x1b[0m".format)
    return found


CHANGES = make_changes()
OF_A_PROGRAM = {name: lambda text, head=head: each_line(text, head.__add__) for name, head in PREFIXES.items()}
OF_A_PROGRAM |= {
    "steps between": mix_with_steps,
    "a healthy job behind": lambda text: START + close(text) + EXITED + HEALTHY_JOB,
}
WITH_STATUS = tuple(one["by"] for one in TEARDOWNS if one.get("status"))


def read_logs() -> dict[str, tuple[str, bool]]:
    """Return each known log by its name, and whether it is one of a whole program, not a line."""
    met = tomllib.loads((FIXTURES / "met.toml").read_text())["log"]
    logs = {f"{number} {log['source']}": (log["text"], True) for number, log in enumerate(met)}
    logs |= {path.stem: (path.read_text(), True) for path in sorted((FIXTURES / "hand").glob("*.out"))}
    for cause, lines in tomllib.loads((FIXTURES / "printed.toml").read_text()).items():
        for number, line in enumerate(lines.splitlines()):
            text = line.replace("\\n", "\n").replace("\\t", "\t")
            logs[f"{cause} {number}"] = f"{text}\n", False
    return logs


LOGS = read_logs()
CASES = [
    pytest.param(log, change)
    for number, (log, (_, is_whole)) in enumerate(LOGS.items())
    for place, change in enumerate((*CHANGES, *(OF_A_PROGRAM if is_whole else ())))
    if (number + place) % SHARE == 0
]


@pytest.fixture
def cause_of(tmp_path):
    def tell(text: str) -> str:
        path = tmp_path / "x.out"
        path.write_text(text, newline="")
        return judge(JobInfo(job_id="17", state="", source="files", name="x"), read_log_evidence([path])).cause

    return tell


@pytest.mark.parametrize(("log", "change"), CASES)
def test_the_cause_stays(log, change, cause_of):
    text = LOGS[log][0]
    cause = cause_of(text)
    contradicts = cause in ENDS and change.startswith((*WITH_STATUS, "all"))
    if cause != UNKNOWN and not contradicts:
        expected = UNKNOWN if change == "a healthy job behind" else cause
        assert cause_of((CHANGES | OF_A_PROGRAM)[change](text)) == expected
