"""A job's output in order: attempts, times, ranks; whole or its end."""

import os
import resource
from datetime import UTC, datetime

import pytest

from slurmddp.errors import UsageError
from slurmddp.monitoring.logs import merge
from slurmddp.monitoring.logs.error_lines import Errors
from slurmddp.monitoring.logs.merge import ALL, Selection, lines
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir

BATCH = """\
set-up says hello
2026-11-21T10:00:00+0000 slurmddp: starts the ranks
srun: error: n2: task 1: Exited with exit code 76
2026-11-21T10:00:09+0000 slurmddp: the ranks have ended
2026-11-21T10:00:10+0000 slurmddp: starts the ranks again
srun: error: says something now
"""
ALL_RANKS = {"ranks": None}
TEN = datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp()


def begins(run, attempt, line):
    """Write down that an attempt began before that line of the batch log, counted from 0."""
    offset = len("".join(BATCH.splitlines(keepends=True)[:line]))
    head = {"time": 1.0, "event": "attempt_start", "job": "7", "attempt": attempt, "rank": None, "host": "n1"}
    append_record(run.events, {**head, "nodes": "n[1-2]", "log_offset": offset})


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    for attempt in ("0.0", "0.1"):
        made.attempt("7", attempt).mkdir(parents=True)
    made.batch_log("7").write_text(BATCH)
    begins(made, "0.0", 1)
    begins(made, "0.1", 4)
    return made


def rank(run, number, text, attempt="0.1", at=None):
    """Write what a rank has printed, the last of it so many seconds after 10 o'clock."""
    log = run.rank_log("7", attempt, number)
    log.write_text(text)
    if at is not None:
        os.utime(log, (TEN + at, TEN + at))


def shown(run, tail=None, **wanted):
    return [line.text.decode().rstrip("\n") for line in lines(Selection(run=run, job_id="7", **wanted), tail)]


def test_by_itself_it_is_rank_0_and_the_batch_script_in_the_newest_attempt(run):
    rank(run, 0, "old\n", "0.0")
    rank(run, 0, "zero\n")
    rank(run, 1, "one\n")
    assert shown(run) == [BATCH.splitlines()[4], "zero", "srun: error: says something now"]


def test_an_earlier_attempt_is_shown_with_the_words_around_it(run):
    rank(run, 0, "old\n", "0.0", at=5)
    words = BATCH.splitlines()
    assert shown(run, attempt="0.0") == [*words[:2], "old", *words[2:4]]
    assert shown(run, attempt=ALL, batch=False) == ["old"]


def test_the_log_of_a_run_without_starts_on_record_is_shown_with_any_attempt_and_once_with_all(run):
    run.events.unlink()
    rank(run, 0, "old\n", "0.0", at=5)
    rank(run, 0, "zero\n")
    words = BATCH.splitlines()
    assert sorted(shown(run)) == sorted([*words, "zero"])
    assert shown(run, attempt="0.0") == [*words[:2], "old", *words[2:]]
    assert shown(run, attempt=ALL) == [*words[:2], "old", *words[2:], "zero"]


def test_an_attempt_whose_name_was_given_again_has_its_last_part(run):
    begins(run, "0.0", 5)
    assert shown(run, attempt="0.0", ranks=frozenset()) == BATCH.splitlines()


def test_ranks_are_merged_by_the_times_that_they_print(run):
    rank(run, 0, "imports\n2026-11-21T10:00:11Z a\n2026-11-21T10:00:13Z c\nof c\n")
    rank(run, 1, "2026-11-21T10:00:12Z b\n2026-11-21T10:00:13Z d\n2026-11-21T10:00:11Z late, and after d\n")
    assert shown(run, batch=False, **ALL_RANKS) == [
        "imports",
        "2026-11-21T10:00:11Z a",
        "2026-11-21T10:00:12Z b",
        "2026-11-21T10:00:13Z c",
        "of c",
        "2026-11-21T10:00:13Z d",
        "2026-11-21T10:00:11Z late, and after d",
    ]


def test_what_tells_a_lines_time_is_told_too(run):
    rank(run, 0, "imports\n2026-11-21T10:00:11Z a\nof a\n")
    found = list(lines(Selection(run=run, job_id="7", attempt="0.1")))
    assert [(line.told, line.number) for line in found] == [("line", 5), ("", 1), ("line", 2), ("before", 3), ("", 6)]
    assert found[2].time == found[3].time and found[1].time is None
    (said,) = [line for line in lines(Selection(run=run, job_id="7", attempt="0.0")) if b"task 1" in line.text]
    assert said.told == "after"


def test_without_times_ranks_follow_each_other_by_number_and_keep_their_lines_together(run):
    for number in (10, 2, 1):
        rank(run, number, f"a{number}\nb{number}\n")
    assert shown(run, batch=False, **ALL_RANKS) == ["a1", "b1", "a2", "b2", "a10", "b10"]


@pytest.mark.parametrize("tail", [None, 2, 3, 99])
def test_the_newest_output_is_the_last_also_of_a_program_without_times(run, tail):
    """After a restart the batch log has lines, and one of srun without a time; the program goes on to print."""
    os.utime(run.batch_log("7"), (TEN + 12, TEN + 12))
    started, said = BATCH.splitlines()[4:]
    rank(run, 0, "epoch 1\nepoch 2\n", at=60)
    assert shown(run, tail) == [started, said, "epoch 1", "epoch 2"][-(tail or 99) :]
    rank(run, 0, "epoch 1\nepoch 2\n", at=12)
    assert shown(run, tail)[-1] == said, "what srun says of the end of a program comes behind it"


def test_launchers_come_before_the_ranks_and_are_no_ranks(run):
    rank(run, 0, "zero\n")
    (run.attempt("7", "0.1") / "node-1.out").write_text("launcher\n")
    (run.attempt("7", "0.1") / "0.end").write_text("0 done\n")
    assert shown(run, batch=False, **ALL_RANKS) == ["launcher", "zero"]
    assert shown(run, batch=False) == ["zero"]


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("attempt", ["last", "all", "0.0"])
def test_a_tail_is_the_end_of_the_whole(run, tail, attempt):
    rank(run, 0, "2026-11-21T10:00:11Z a\nof a\nof a, too\n")
    rank(run, 1, "2026-11-21T10:00:12Z b\nof b\n", "0.0")
    whole = shown(run, attempt=attempt, **ALL_RANKS)
    assert shown(run, tail, attempt=attempt, **ALL_RANKS) == whole[max(0, len(whole) - tail) :]


def test_a_tail_of_a_long_file_knows_the_time_from_a_line_before_it_and_no_line_numbers(run):
    rank(run, 0, "x" * 99 + "\n2026-11-21T10:00:11Z a\n" + "of a\n" * 20000)
    (line,) = lines(Selection(run=run, job_id="7", batch=False), 1)
    assert (line.told, line.number) == ("", 0), "64 KiB is as far as one looks back"
    rank(run, 0, ("x" * 99 + "\n") * 9999 + "2026-11-21T10:00:11Z a\n" + "of a\n" * 200)
    (line,) = lines(Selection(run=run, job_id="7", batch=False), 1)
    assert (line.told, line.number) == ("before", 0)


def test_a_job_that_has_begun_nothing_shows_what_its_script_said(run):
    run.batch_log("8").write_text("set-up failed\n")
    assert [line.text for line in lines(Selection(run=run, job_id="8"))] == [b"set-up failed\n"]
    assert list(lines(Selection(run=run, job_id="9"))) == []


def test_an_attempt_that_there_is_not_is_refused_with_those_that_there_are(run):
    with pytest.raises(UsageError, match=r"job 7 has no attempt 2\.0; its attempts are 0\.0, 0\.1"):
        shown(run, attempt="2.0")
    with pytest.raises(UsageError, match=r"job 9 has no attempt 0\.0; it has begun none"):
        list(lines(Selection(run=run, job_id="9", attempt="0.0")))


def test_the_file_of_sbatch_error_is_shown_with_the_batch_log(run):
    run.batch_errors("7").write_text("IndexError: 12\n")
    assert "IndexError: 12" in shown(run) and shown(run, attempt=ALL).count("IndexError: 12") == 1
    assert shown(run, **ALL_RANKS, chosen=Errors().is_one)[-1] == "IndexError: 12"
    assert shown(run, tail=1) == ["IndexError: 12"]


def test_rank_0_of_a_script_of_ones_own_is_not_waited_for(run):
    assert shown(run, batch=False) == [], "it may print later"
    run.training_marks.mkdir()
    with pytest.raises(UsageError, match=r"rank 0 has no output .* the output of the script; type: slurmddp logs 7"):
        shown(run, batch=False)
    assert shown(run), "what the script says"


def test_a_rank_that_there_is_not_is_refused_with_the_last_one(run):
    with pytest.raises(UsageError, match=r"rank 5 has no output in attempt 0\.1 .*; type: slurmddp logs \S+$"):
        shown(run, ranks=frozenset({5}))
    rank(run, 3, "x\n")
    with pytest.raises(UsageError, match=r"rank 5 .*; the last with output is 3"):
        shown(run, ranks=frozenset({3, 5}))


def test_hosts_come_from_the_start_of_the_ranks_else_from_their_ends(run):
    head = {"time": 1.0, "event": "start", "job": "7", "rank": 0, "host": "n1"}
    append_record(run.events, {**head, "attempt": "0.1", "ranks": {"n1": "0-1,4", "n2": "2-3", "n3": "5-"}})
    for number in (0, 3, 4, 5):
        rank(run, number, "x\n")
        rank(run, number, "x\n", "0.0")
    run.rank_record("7", "0.0", 3).write_text("77 rank 3 on n9: ValueError: boom\n")
    found = lines(Selection(run=run, job_id="7", ranks=None, batch=False, attempt=ALL))
    assert [line.source.host for line in found] == ["", "n9", "", "", "n1", "n2", "n1", ""]


def test_more_ranks_than_descriptors(run):
    for number in range(1000):
        rank(run, number, f"of {number}\n")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        found = shown(run, batch=False, **ALL_RANKS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found == [f"of {number}" for number in range(1000)]


def test_many_files_are_read_in_small_blocks_and_lose_nothing(run, monkeypatch):
    monkeypatch.setattr(merge, "BUDGET_BYTES", 2**12)
    for number in range(3):
        rank(run, number, "".join(f"{number} {line}\n" for line in range(3000)))
    found = shown(run, batch=False, **ALL_RANKS)
    assert found == [f"{number} {line}" for number in range(3) for line in range(3000)]
