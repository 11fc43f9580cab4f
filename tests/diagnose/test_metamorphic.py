"""What stands around a failure in a log does not change what is said of it.

Each known log is changed: words of launchers, trackers and dying children behind it, once and many times; prose or
steps before it; prefixes, colours, line ends. Each log gets some of the changes, others than its neighbours; with
SLURMDDP_TESTS_SOAK=1 it gets all.
"""

import os
import tomllib
from collections.abc import Callable
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
PREFIXES = {
    "torch": "[rank1]: ",
    "torchrun": "[default1]:",
    "srun": "1: ",
    "mpirun": "[1,1]<stderr>:",
    "a clock": "2026-03-04T12:00:00.123456Z ",
    "a host": "n1: ",
    "Ray": "(RayTrainWorker pid=2113, ip=10.0.0.5) ",
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
    found["CR LF"] = lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n")
    found["colours"] = lambda text: each_line(text, "\x1b[31m{}\x1b[0m".format)
    return found


CHANGES = make_changes()
OF_A_PROGRAM = {name: lambda text, head=head: each_line(text, head.__add__) for name, head in PREFIXES.items()}
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
KNOWN = {("container-failed 3", "DeepSpeed behind, 50")}
"""What is not told yet: nearly all lines have the launcher's own prefix, which is then taken off as a label."""
CASES = [
    pytest.param(log, change, marks=[pytest.mark.xfail(strict=True)] if (log, change) in KNOWN else [])
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
        assert cause_of((CHANGES | OF_A_PROGRAM)[change](text)) == cause
