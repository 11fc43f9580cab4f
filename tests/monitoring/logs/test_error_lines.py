"""Lines that look like errors, out of what several ranks print."""

from pathlib import Path

import pytest

from slurmddp.diagnose.rules import load_rules
from slurmddp.monitoring.logs.error_lines import Errors, keep_decisive
from slurmddp.monitoring.logs.log_files import Source
from slurmddp.monitoring.logs.merge import Line
from slurmddp.runs.log_tail import relative_path

RULES = [rule for rule in load_rules().own if rule.regex]


def line(text: str, rank: int = 0) -> Line:
    return Line(text.encode() + b"\n", Source(Path(f"{rank}.out"), "rank", rank), "0.0")


def chosen(*lines):
    errors = Errors()
    return [line.text.decode().rstrip() for line in lines if errors.is_one(line.source.path, line.text)]


def test_the_texts_of_known_failures_are_errors():
    assert [rule.key for rule in RULES if not chosen(line(rule.example.splitlines()[0]))] == []


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:40:18 ***", True),
        ("2026-11-21 23:40:18 ERROR no such thing", True),
        ("[rank0]:[E1121 23:40:18.25 ProcessGroupNCCL.cpp:616] watchdog", True),
        ("torch.OutOfMemoryError: CUDA out of memory.", True),
        ("my.own.Exception: boom", True),
        ("2026-11-21T23:40:18+0000 slurmddp: job 7, attempt 0.0, ended with status 77: boom", True),
        ("step 3  loss 0.12  error_rate 0.4", False),
        ("mean_squared_error=0.4", False),
        ("2026-11-21T23:40:18+0000 slurmddp: job 7, attempt 0.0, ended with status 0: done", False),
        ("terrors of the deep", False),
        ("", False),
    ],
)
def test_what_looks_like_an_error(text, is_error):
    assert chosen(line(text)) == [text] * is_error


def test_lines_that_differ_in_a_digit_alone_are_told_apart():
    ended = "2026-11-21T23:40:18+0000 slurmddp: job 7, attempt 0.0, ended with status "
    assert chosen(line(f"{ended}0: done"), line(f"{ended}7: boom"), line(f"{ended}0: done")) == [f"{ended}7: boom"]


def test_tracebacks_are_whole_though_ranks_are_mixed():
    lines = [
        line("Traceback (most recent call last):"),
        line("[rank1]: Traceback (most recent call last):", 1),
        line('  File "train.py", line 3, in <module>'),
        line('[rank1]:   File "train.py", line 4, in <module>', 1),
        line("    main()"),
        line("ValueError: boom"),
        line("step 5", 1),
        line("step 6", 1),
        line("step 6"),
    ]
    assert chosen(*lines) == [found.text.decode().rstrip() for found in lines[:7]]


def test_what_only_follows_stands_not_before_the_reason(tmp_path):
    """Ranks that were ended because another one failed may print before it has: as in one output of a batch script."""
    ended = b"SIGTERM received: another rank has ended, or the job must stop, as rank 0 says then; status 76\n"
    texts = [b"run.sh: line 3: module: command not found\n", ended, ended, ended, b"ValueError: boom\n", ended]
    source = Source(tmp_path / "7.out", "batch")
    found = [Line(text, source, "0.0", number=number) for number, text in enumerate(texts, 1)]
    kept, left = keep_decisive(found, {(relative_path(source.path), 5)})
    assert [line.number for line in kept] == [1, 5, 6] and left == 3
    assert [line.number for line in keep_decisive(found, {("another", 5)})[0]] == [1, 2, 3, 4, 5, 6]
