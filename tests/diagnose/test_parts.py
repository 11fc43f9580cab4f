"""The parts that a diagnosis is made of: lines, tracebacks, times, launchers' words, dumps, Slurm's answers."""

import os
import pickle
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest

from slurmddp.diagnose import flight_recorder as flights
from slurmddp.diagnose.diagnosis import query_job
from slurmddp.diagnose.flight_recorder import find_divergence, find_lagging_rank, load_dumps
from slurmddp.diagnose.line_meanings import find_meanings
from slurmddp.diagnose.log_reader import LogLine, make_evidence, read_lines
from slurmddp.diagnose.prefixes import strip_prefixes
from slurmddp.diagnose.rank_exits import parse_rank_exits
from slurmddp.diagnose.rule_types import Diagnosis, Line, format_diagnosis
from slurmddp.diagnose.tracebacks import find_fatal_tracebacks, find_tracebacks
from slurmddp.errors import ClusterError
from slurmddp.slurm import client, queries
from slurmddp.slurm.client import Answer


def raw(text: str) -> list[LogLine]:
    return [LogLine(Path("x"), 0, line) for line in text.splitlines()]


@pytest.mark.parametrize("before", ["\r".join(f"{n}%|#| {n}/9 [9it/s]" for n in range(99)) + "\r", "\0" * 999])
def test_the_end_of_one_long_line_is_read(tmp_path, before):
    """A progress bar of 4 MB on one line, ended by the error, was an empty output."""
    path = tmp_path / "1.out"
    path.write_text(f"{before}RuntimeError: CUDA out of memory\n")
    assert read_lines(path, head=100, tail=100)[-1].text == "RuntimeError: CUDA out of memory"


def test_of_a_long_file_head_and_tail_are_read_and_the_lines_keep_their_numbers(tmp_path):
    path = tmp_path / "long.out"
    path.write_text("".join(f"line {number}\n" for number in range(1, 10001)))
    got = read_lines(path, head=100, tail=100)
    assert (got[0].text, got[-1].text) == ("line 1", "line 10000")
    assert len(got) < 40
    assert [make_evidence(line).number for line in (got[0], got[-1])] == [1, 10000]


def test_a_file_that_is_missing_or_empty_has_no_lines(tmp_path):
    (tmp_path / "empty").touch()
    assert read_lines(tmp_path / "missing") == read_lines(tmp_path / "empty") == []


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert read_lines(tmp_path / "pipe") == []


def test_what_a_program_caught_and_logged_in_thousands_ended_nothing():
    """In a time that grows with the log, and not with its square."""
    caught = "Traceback (most recent call last):\n  File 'a'\nValueError: bad sample\nskipped\n"
    assert find_fatal_tracebacks(raw(caught * 10_000 + "done\n" * 20)) == []
    assert [traceback.lines_after for traceback in find_fatal_tracebacks(raw(caught * 10_000))] == [*range(12, 0, -1)]


def test_colours_progress_bars_and_the_ends_of_lines_of_windows_are_taken_out(tmp_path):
    (tmp_path / "x").write_bytes(b"\x1b[31mred\x1b[0m\n 10%|#\r 20%|##\r 30%|###\nValueError: x\r\nlast")
    assert [line.text for line in read_lines(tmp_path / "x")] == ["red", " 30%|###", "ValueError: x", "last"]


def test_labels_say_whose_a_line_is():
    got = strip_prefixes(raw("[rank3]: Traceback\n[rank3]:[E1121 23:00:00 x\n[default1]:hello\nplain 3: 4"))
    assert [(line.rank, line.text) for line in got] == [
        (3, "Traceback"),
        (3, "[E1121 23:00:00 x"),
        (1, "hello"),
        (None, "plain 3: 4"),
    ]


def test_a_chain_of_exceptions_is_told_from_the_first():
    text = """Traceback (most recent call last):
  File "a", line 1
KeyError: 'a'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b", line 2
mine.Wrong: no
"""
    assert [[line.text for line in traceback.exceptions] for traceback in find_tracebacks(raw(text))] == [
        ["KeyError: 'a'", "mine.Wrong: no"]
    ]


def test_what_came_after_a_traceback_tells_whether_it_ended_something():
    caught = 'Traceback (most recent call last):\n  File "a", line 1\nKeyError: 1\n'
    assert len(find_fatal_tracebacks(raw(caught + "srun: error: n1: task 0: Exited with exit code 1\n" * 30))) == 1
    assert find_tracebacks(raw("Traceback (most recent call last):\n  File")) == []  # cut off
    assert find_fatal_tracebacks(raw(caught + "epoch 1\n" * 30)) == []


def test_a_script_with_a_wrong_syntax_has_no_traceback_and_is_found():
    text = '  File "train.py", line 3\n    for\n       ^\nSyntaxError: invalid syntax\n'
    assert [traceback.exceptions[0].text for traceback in find_fatal_tracebacks(raw(text))] == [
        "SyntaxError: invalid syntax"
    ]


def test_torchruns_page_names_the_first_that_failed():
    text = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_23:10:00
  host      : n2
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 123)
"""
    (found,) = parse_rank_exits(raw(text))
    assert (found.number, found.host, found.signal) == (3, "n2", "SIGKILL")
    assert found.time == datetime.fromisoformat("2026-11-21T23:10:00").timestamp()


@pytest.mark.parametrize(
    ("text", "number", "signal", "status"),
    [
        ("srun: error: n2: task 1: Killed", 1, "SIGKILL", None),
        ("srun: error: n2: tasks 4-7: Exited with exit code 3", 4, "", 3),
        ("srun: error: n2: task 1: Exited with exit code 137", 1, "SIGKILL", None),
        ("srun: error: n2: task 1: Segmentation fault (core dumped)", 1, "SIGSEGV", None),
        ("srun: error: n2: task 1: Out Of Memory", 1, "out of memory", None),
        ("torchrun: rank 5 (pid 7) was killed by SIGBUS, the first to fail", 5, "SIGBUS", None),
        ("rank 3 (pid 7) ended with status 1; stopping the others", 3, "", 1),
        ("/var/spool/slurm_script: line 5:  4711 Killed                  python train.py", None, "SIGKILL", None),
    ],
)
def test_launchers_say_who_ended_and_how(text, number, signal, status):
    (found,) = parse_rank_exits(raw(text))
    assert (found.number, found.signal, found.status) == (number, signal, status)


class _Evil:
    def __reduce__(self):
        return os.system, ("exit 1",)


def _dump(**changed: object) -> bytes:
    entry = {
        "process_group": ("0", "default_pg"), "is_p2p": False, "profiling_name": "nccl:all_reduce",
        "collective_seq_id": 1, "input_sizes": [[4]],
    }  # fmt: skip
    return pickle.dumps({"entries": [entry | changed]})


def _nested(depth: int) -> list[object]:
    made: list[object] = [1]
    for _ in range(depth):
        made = [made] * 10
    return made


GREEDY = pytest.param(b"\x80\x04]r\xff\xff\xff\x7f.", id="a place in a table larger than memory")
HOSTILE = [
    pytest.param(pickle.dumps(_Evil()), id="a call"),
    pytest.param(b"", id="empty"),
    pytest.param(b"no pickle", id="no pickle"),
    pytest.param(pickle.dumps([1]), id="another thing"),
    pytest.param(pickle.dumps({"entries": [{}]}), id="an empty entry"),
    pytest.param(_dump(collective_seq_id=float("inf")), id="no number"),
    pytest.param(_dump(collective_seq_id=10**6000), id="a large number"),
    pytest.param(_dump(input_sizes=_nested(40)), id="a text of all memory"),
    pytest.param(_dump(profiling_name=_nested(40)), id="a name of all memory"),
    pytest.param(b"\x80\x04\x8e" + (2**60).to_bytes(8, "little") + b".", id="more bytes than memory"),
    pytest.param(b"(" * 10**6 + b"t" * 10**6 + b".", id="a million levels"),
    GREEDY,
]


@pytest.mark.parametrize("content", HOSTILE)
def test_a_dump_that_is_none_or_hostile_is_left_out_and_nothing_of_it_is_run(tmp_path, content):
    paths = [tmp_path / f"flight.{rank}" for rank in range(3)]
    for path, held in zip(paths, (_dump(), _dump(), content), strict=True):
        path.write_bytes(held)
    assert load_dumps(paths) == {path: flight("all_reduce") for path in paths[:2]}


def test_a_dump_too_large_or_that_is_no_file_is_left_out(tmp_path):
    with (tmp_path / "flight.0").open("wb") as file:
        file.truncate(2**25 + 1)
    os.mkfifo(tmp_path / "flight.1")
    assert load_dumps([tmp_path / "flight.0", tmp_path / "flight.1"]) == {}


def test_a_reader_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(flights, "READ_LIMIT_S", 0.2)
    monkeypatch.setattr(flights.flight_pickles, "__file__", str(tmp_path / "hang.py"))
    (tmp_path / "hang.py").write_text("import time\nprint('null', flush=True)\ntime.sleep(60)\n")
    assert load_dumps([tmp_path / "flight.0", tmp_path / "flight.1"]) == {}


def flight(*kinds: str) -> flights.FlightRecord:
    return {number: (kind, "[[4]]") for number, kind in enumerate(kinds, start=1)}


def test_the_first_rank_that_did_not_come_is_named():
    found = find_divergence(
        {0: flight("all_reduce", "barrier"), 1: flight("all_reduce"), 2: flight("all_reduce", "barrier")}
    )
    assert (found.rank, found.differs) == (1, False)
    assert found.what == "rank 1 did not enter collective 2 (barrier of [[4]])"


def test_ranks_in_different_collectives_are_named_by_the_odd_one():
    ranks = {0: flight("all_reduce"), 1: flight("all_reduce"), 2: flight("barrier")}
    assert (find_divergence(ranks).rank, find_divergence(ranks).differs) == (2, True)


def timed_out(rank, number, group=""):
    said = "Watchdog caught collective operation timeout: WorkNCCL"
    return f"[{group}Rank {rank}] {said}(SeqNum={number}, OpType=ALLREDUCE"


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ([timed_out(0, 96), timed_out(0, 95), timed_out(7, 63), timed_out(1, 95)], 7),
        ([timed_out(0, 95), timed_out(1, 95)], None),
        ([timed_out(0, 95), timed_out(1, 63), timed_out(2, 63)], None),
        ([timed_out(0, 95), timed_out(0, 63)], None),
        ([timed_out(0, 95, "PG ID 0 PG GUID 0(default_pg) "), timed_out(1, 63, "PG ID 1 PG GUID 9(tp) ")], None),
        ([timed_out(0, 95, "PG ID 0 PG GUID 0(default_pg) "), timed_out(1, 63, "PG ID 0 PG GUID 0(default_pg) ")], 1),
        ([], None),
    ],
)
def test_a_rank_that_waits_in_an_earlier_collective_than_all_others_is_behind(lines, rank):
    found = find_lagging_rank(lines)
    assert (found and found.rank) == rank
    assert (
        found is None or f"rank {rank} is behind: it waits in collective 63 (ALLREDUCE), the others in 95" in found.what
    )


def test_ranks_that_did_the_same_have_not_parted():
    assert find_divergence({0: flight("all_reduce"), 1: flight("all_reduce")}) is None
    assert find_divergence({0: flight("all_reduce")}) is None


SHOWN = (
    "JobId=17 JobName=train it UserId=me(1000) GroupId=me(1000) JobState=PENDING Reason=Nodes required for job "
    "are DOWN Dependency=(null) Requeue=1 Restarts=2 ExitCode=0:0 NodeList=(null) StdErr=/e StdIn=/dev/null StdOut=/o"
)
BOOKED = """JobID|JobName|State|ExitCode|Reason|NodeList|MaxRSS
17|train it|CANCELLED by 1000|0:15|None|n[1-2]|
17.0|python|CANCELLED|0:9|||347944K
"""


def test_slurm_is_asked_and_the_accounting_adds_who_and_how_much(monkeypatch):
    answers = {"scontrol": Answer(0, SHOWN, ""), "sacct": Answer(0, BOOKED, "")}
    monkeypatch.setattr(client, "ask", lambda command, *_, **__: answers[command[0]])
    known, _ = query_job("17", {})
    assert (known.state, known.reason, known.name) == ("PENDING", "Nodes required for job are DOWN", "train it")
    assert (known.cancelled_by, known.max_rss, known.last_step) == ("1000", "347944K", "CANCELLED")
    assert (known.output, known.errors, known.nodes) == ("/o", "/e", "")
    answers["scontrol"] = Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
    assert (query_job("17", {})[0].state, query_job("17", {})[0].source) == ("CANCELLED", "sacct")
    answers["sacct"] = Answer(1, "", "Slurm accounting storage is disabled")
    assert (query_job("17", {})[0].source, query_job("17", {})[1]) == ("files", "")


def test_of_an_array_that_is_meant_as_a_whole_a_task_that_failed_is_told_of(monkeypatch):
    shown = (
        "JobId=19 ArrayJobId=17 ArrayTaskId=3-9 JobName=x ArrayTaskId=8 UserId=me(1000) JobState=PENDING\n"
        "JobId=18 ArrayJobId=17 ArrayTaskId=0 JobName=x UserId=me(1000) JobState=COMPLETED\n"
        "JobId=20 ArrayJobId=17 ArrayTaskId=1 JobName=x UserId=me(1000) JobState=FAILED\n"
    )
    head = "JobID|JobName|State|ExitCode|Reason|NodeList|MaxRSS\n"
    booked = head + "17_0|x|COMPLETED|0:0|None|n1|\n17_1|x|FAILED|77:0|None|n2|\n17_1.batch|batch|FAILED|77:0||n2|5K\n"
    answers = {"scontrol": Answer(0, shown, ""), "sacct": Answer(0, booked, "")}
    monkeypatch.setattr(client, "ask", lambda command, *_, **__: answers[command[0]])
    assert (query_job("17", {})[0].job_id, query_job("17", {})[0].state) == ("17_1", "FAILED")
    answers["scontrol"] = Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
    known, _ = query_job("17", {})
    assert (known.job_id, known.state, known.max_rss) == ("17_1", "FAILED", "5K")
    answers["scontrol"] = Answer(0, shown.splitlines()[0], "")
    assert query_job("17", {})[0].job_id == "17"


def test_a_slurm_that_does_not_answer_is_said_to(monkeypatch):
    def silent(command, *_, **__):
        raise ClusterError(f"{command[0]} did not end within 20 s")

    monkeypatch.setattr(client, "ask", silent)
    assert query_job("17", {})[1] == "scontrol did not end within 20 s"
    assert queries.lost_nodes("n[1-2]", {}, timeout_s=1) == ()


def test_a_diagnosis_for_people_says_all_that_json_does():
    one = Diagnosis(
        job_id="17",
        name="run",
        cause="exception",
        what="it raised",
        sure="likely",
        rank=3,
        host="n2",
        evidence=(Line("a.out", 5, "ValueError: x"),),
        others="31 ranks then lost their peer",
        advice="correct it",
        again=False,
        state="FAILED",
        attempt="1.0",
    )
    assert format_diagnosis(one) == [
        "run (job 17), FAILED: it raised [exception, likely]",
        "first: rank 3 on n2, attempt 1.0",
        "  a.out:5: ValueError: x",
        "others: 31 ranks then lost their peer",
        "next: correct it",
        "starting it again would end the same way",
    ]
    assert list(asdict(one)["evidence"]) == [{"file": "a.out", "number": 5, "text": "ValueError: x"}]


@pytest.mark.parametrize("word", ["_", "a/", "12:00:00 ", " 1", "0:", "<a", "a."])
def test_no_line_keeps_the_reader_of_launchers_busy(word):
    """Sixty lines of 4 KB took up to 26 s; the longest of a log took minutes."""
    lines = raw("\n".join(["Error: " + word * 250_000, "[rank0]: " + word * 250_000]))
    assert parse_rank_exits(lines) == []


def test_a_damaged_record_whose_text_is_no_unicode_means_what_its_other_words_say():
    assert find_meanings("ordinary \udc80 words") == frozenset()
    assert find_meanings("\udc80 slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT x ***") >= {"end"}
