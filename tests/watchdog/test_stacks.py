"""`slurmddp stacks` shows which rank of a running job stands elsewhere, and where."""

import json
import linecache
from pathlib import Path

import pytest
from polling import until
from standing import LAUNCHERS, PROGRAM

from slurmddp.watchdog import stack_groups
from slurmddp.watchdog.stack_groups import format_groups, format_stacks, group_ranks

TORCH, LIBRARY = "/env/lib/python3.12/site-packages/torch", "/usr/lib64/python3.9"
ALL_REDUCE = [(f"{TORCH}/distributed/distributed_c10d.py", 3, "all_reduce"), (f"{TORCH}/c10d_logger.py", 8, "wrapper")]
TRAIN = [("/home/me/train.py", 81, "train"), ("/home/me/train.py", 99, "<module>"), ("<frozen runpy>", 88, "_run_code")]
READ = [(f"{LIBRARY}/socket.py", 7, "readinto"), (f"{LIBRARY}/ssl.py", 9, "read")]
BUNDLED = str(Path(stack_groups.__file__).parents[1] / "worker/bundled/train.py")
LINES = {
    40: "    with open(path, 'rb') as file:",
    41: "    a(b(c))",
    42: "    if (x):",
    43: "    while not time.sleep(5):",
}
FOUND = "RANKS  NODES  IN            PLACE\n1      n1     open()        load() at stand.py:14\n"
WAITING = "0,2-3  n1,n2  all_reduce()  train() at stand.py:20\n"


def rank(number, *stack, host="n1", why=""):
    frames = [dict(zip(("file", "line", "function"), frame, strict=True)) for frame in stack]
    return {"rank": number, "host": host, "stack": frames or None, "why_no_stack": why}


def line_of(_, number):
    return LINES.get(number, "")


@pytest.mark.parametrize(
    ("stack", "call", "place"),
    [
        ([*ALL_REDUCE, *TRAIN], "all_reduce()", "train() at train.py:81"),
        ([("/home/me/data.py", 40, "load"), *TRAIN], "open()", "load() at data.py:40"),
        ([("/home/me/data.py", 41, "load"), *TRAIN], "", "load() at data.py:41"),
        ([("/home/me/data.py", 42, "<module>")], "", "data.py:42"),
        ([("/home/me/data.py", 43, "f")], "time.sleep()", "f() at data.py:43"),
        ([*READ, *TRAIN], "read()", "train() at train.py:81"),
        ([("/env/lib/python3.12/site-packages/lightning/x.py", 5, "fit"), *TRAIN], "", "fit() at x.py:5"),
        ([*ALL_REDUCE, (BUNDLED, 9, "_train")], "all_reduce()", "_train() at train.py:9"),
        ([(f"{LIBRARY}/a.py", 7, "wait"), ("<frozen runpy>", 88, "_run_code")], "", "wait() at a.py:7"),
    ],
)
def test_a_stack_is_folded_to_the_program_and_what_it_calls(stack, call, place):
    (group,) = group_ranks([rank(0, *stack)], line_of)
    assert (group.call, group.place) == (call, place)


def test_the_smallest_group_is_the_first_line_and_all_fit_80_columns():
    waiting = [
        rank(number, *ALL_REDUCE, *TRAIN, host=f"n{number // 4}") for number in range(16) if number not in (7, 9)
    ]
    stopped = rank(9, host="n2", why="it is stopped by a signal or a debugger")
    long = ("/home/me/" + "d" * 70 + ".py", 40, "load")
    groups = group_ranks([*waiting, stopped, rank(7, long, host="n1")], line_of)
    lines = format_groups(groups)
    assert lines[0].split() == ["RANKS", "NODES", "IN", "PLACE"]
    assert lines[1].split()[:4] == ["7", "n1", "open()", "load()"] and lines[1].endswith("ddd...")
    assert lines[2].split(maxsplit=2) == ["9", "n2", "no stack: it is stopped by a signal o..."]
    assert lines[3] == "0-6,8,10-15  n0,n1,n2,n3  all_reduce()  train() at train.py:81"
    assert max(map(len, lines)) == 80


def test_many_ranks_are_counted_and_names_cannot_change_a_terminal():
    ranks = [rank(2 * number, ("/home/me/\x1b[2J.py", 1, "f"), host=f"node{number}") for number in range(40)]
    groups = group_ranks(ranks, line_of)
    assert format_groups(groups)[1].split() == ["40", "ranks", "40", "nodes", "f()", "at", "\\x1b[2J.py:1"]
    assert "\x1b" not in "".join(format_stacks(groups, line_of))


def test_the_same_line_number_in_two_files_of_one_name_is_two_places():
    assert len(group_ranks([rank(0, ("/a/m.py", 1, "f")), rank(1, ("/b/m.py", 1, "f"))], line_of)) == 2


@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_the_rank_that_stands_elsewhere_is_the_first_line(standing):
    assert until(lambda: (said := standing.type("stacks", standing.name))[0] == FOUND + WAITING and said)[1] == ""
    full, _ = standing.type("stacks", standing.job, "--full")
    odd, others = full.removeprefix(FOUND + WAITING + "\n").split("\n\n")
    assert odd.startswith("rank 1 on n1:\n") and others.startswith("rank 0 on n1, as 2 others:\n")
    source = linecache.getline(str(PROGRAM), 14).strip()
    assert odd.endswith(f'  File "{PROGRAM}", line 14, in load\n    {source}')
    found = json.loads(standing.type("stacks", standing.name, "--json")[0])
    assert [group["ranks"] for group in found["groups"]] == [[1], [0, 2, 3]]
    assert [(one["rank"], one["host"], one["state"]) for one in found["ranks"]] == [
        (0, "n1", "S"), (1, "n1", "S"), (2, "n2", "S"), (3, "n2", "S"),
    ]  # fmt: skip
