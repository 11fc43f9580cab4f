"""No output keeps a diagnosis busy: the time grows with the length of a line, and with the number of lines."""

import inspect
import re
import time
from pathlib import Path

import pytest

from slurmddp.diagnose import (
    evidence,
    flight_recorder,
    line_meanings,
    log_reader,
    output_files,
    prefixes,
    rank_exits,
    run_evidence,
    tracebacks,
    verdict,
)
from slurmddp.diagnose.evidence import read_log_evidence
from slurmddp.diagnose.log_reader import LogLine
from slurmddp.diagnose.prefixes import strip_prefixes
from slurmddp.diagnose.rules import load_rules
from slurmddp.diagnose.verdict import judge
from slurmddp.monitoring.logs import error_lines
from slurmddp.monitoring.status import slurm_answers
from slurmddp.monitoring.status.slurm_answers import task_indices
from slurmddp.runs import exit_records, facts, log_tail
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobInfo

MODULES = (
    *(
        evidence,
        flight_recorder,
        line_meanings,
        log_reader,
        output_files,
        prefixes,
        rank_exits,
        run_evidence,
        tracebacks,
        verdict,
    ),
    *(error_lines, slurm_answers, exit_records, facts, log_tail),
)


def _is_searched(module, name):
    """Return whether a pattern may begin anywhere in a text, and not only at its beginning."""
    used = re.search(rf"\b{name}\.(search|finditer|findall|sub)\(", inspect.getsource(module))
    return used is not None or name == "_RANK_NAMES"


PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}{name}{number or ''}": (pattern, _is_searched(module, name))
    for module in MODULES
    for name, value in vars(module).items()
    for number, pattern in enumerate(value if isinstance(value, tuple) else (value,))
    if isinstance(pattern, re.Pattern)
}
"""Those of Python, whose time may grow with more than the length; RE2's cannot."""
HEADS = ("", "x ", "[", "(", "[W", "x [PG ", "File ", "\t", "rank ", "2026-11-25 ", "- raise ", "error: *** JOB 1 ON ")
UNITS = (
    *("a", "A", "1", " ", ".", "-", "/", "[", "(", "]:", "=", "a.", "a.A", "1:", "1,", "1-", ": ", "a/", "\t ", '"'),
    *(
        "AError: ",
        "AError(",
        "srun: error: ",
        "[PG ",
        "finish",
        "pid=1",
        "(pid=1",
        "exitcode ",
        'File "',
        "rank ",
        "raise ",
    ),
    *(
        "success ",
        "exit code ",
        "x.cpp:1",
        "/offline-run-",
        "View run ",
        " task",
        "NCCL INFO a/",
        "frame #1",
        "[rank1]: ",
    ),
)


def seconds(work, repeat=3):
    """Return the least CPU time of a call."""
    times = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_of_python_takes_linear_time_on_its_worst_line(name):
    pattern, is_searched = PATTERNS[name]
    find = pattern.search if is_searched else pattern.match

    def work(head, unit, length):
        line = head + unit * (length // len(unit)) + "\x01"
        text = line if isinstance(pattern.pattern, str) else line.encode()
        return lambda: find(text)

    worst = max(((head, unit) for head in HEADS for unit in UNITS), key=lambda kind: seconds(work(*kind, 1000), 1))
    short, long = (seconds(work(*worst, length)) for length in (2000, 16_000))
    assert long < max(20 * short, 0.004), worst  # linear 8 times as long; quadratic 64 times, and 0.02 s at least


HEADER = "Traceback (most recent call last):"
FILES = {
    "launchers": lambda _: "srun: error: " * 300,
    "watchdogs": lambda _: "[PG " * 1000,
    "good ends": lambda _: "finish" * 600,
    "warnings": lambda _: "[W" + "1" * 3990,
    "ray": lambda _: "(" + "pid=1" * 700,
    "names in a line": lambda _: "AError: " * 500,
    "cancelled jobs": lambda _: "slurmstepd: error: *** JOB 1 ON x CANCELLED AT ",
    "tracebacks": lambda number: f'{HEADER}\n  File "x.py", line 1\nA{number}Error: x',
    "heads": lambda number: f'{HEADER}\n  File "x.py", line 1\nA{number}Error: x\nZError:\nZError:\nZError:\nZError:',
    "prefixes": lambda number: f"p{_letters(number)}{HEADER}\np{_letters(number)}x",
    "all rules": lambda number: "" if number else "\n".join(_EXAMPLES),
    "steps": lambda number: f"step {number} loss 1",
    "ranks": lambda number: (
        f'[rank{number}]: {HEADER}\n[rank{number}]:   File "x", line 1\n[rank{number}]: ValueError: x'
    ),
}
_EXAMPLES = [rule.example for rule in load_rules().own if rule.example]


def _letters(number):
    return "".join(chr(97 + number // 26**power % 26) for power in range(4)) * (1 + number % 40)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_takes_linear_time(kind, tmp_path):
    def diagnose(size):
        text, number = FILES[kind](0) + "\n", 1
        size += len(text)  # the first line may be long
        while len(text) < size:
            line = FILES[kind](number) or f"epoch {number}"
            text, number = text + line + "\n", number + 1
        path = tmp_path / f"{size}.out"
        path.write_text(text)
        return lambda: judge(JobInfo(job_id="x", state="", source="files"), read_log_evidence([path], has_failed=False))

    diagnose(1000)()
    small, large = seconds(diagnose(2**16)), seconds(diagnose(2**19))
    assert large < max(24 * small, 0.2), f"{small:.2f} s, and of eight times as much {large:.2f} s"  # quadratic: 64


def test_the_lines_of_a_long_file_are_counted_once(tmp_path):
    path = tmp_path / "x.out"
    path.write_bytes(b"x\n" * 2**22)
    log_reader.make_evidence(LogLine(path, 0, "x"))
    took = seconds(lambda: [log_reader.make_evidence(LogLine(path, 2**23 - 2 * n, "x")) for n in range(1, 2000)], 1)
    assert took < 2
    assert [log_reader.make_evidence(LogLine(path, 2 * n, "x")).number for n in (0, 1, 2**22 - 1)] == [1, 2, 2**22]


def test_lists_of_a_hostile_run_take_no_time():
    for text in ("[" * 10**6, "1[0-999999999]", f"1[{'9' * 5000}]"):
        assert seconds(lambda text=text: task_indices(text), 1) < 0.5
        assert task_indices(text) is None
    assert task_indices("17_[1-3,7%2]") == {1, 2, 3, 7}
    assert try_expand("[1]" * 5000) is None


def test_a_prefix_with_the_pid_of_ray_is_removed_still():
    lines = [LogLine(Path("x"), n, f"(Worker pid={n}, ip=1.2.3.4) step {n}") for n in range(9)]
    assert [line.text for line in strip_prefixes(lines)] == [f"step {n}" for n in range(9)]
