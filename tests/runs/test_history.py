"""What a run's events say: by job and attempt, whatever else stands in the file."""

import json
import math
import os

import large_runs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.runs import facts, files, history
from slurmddp.runs.facts import read_run
from slurmddp.runs.layout import RunDir

HEAD = {"job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}
LINES = [
    {"time": 1.0, "event": "start", **HEAD, "world_size": 4, "local_world_size": 2, "nodes": 2, "launcher": "srun"},
    {"time": 2.0, "event": "metrics", **HEAD, "step": 10, "total": 40, "values": {"loss": 0.5}},
    {"time": 3.0, "event": "checkpoint", **HEAD, "step": 10, "held_s": 0.1, "write_s": "nan"},
    {"time": 4.0, "event": "requeue", **HEAD, "rank": None, "reason": "preempted", "excluded": []},
    {"time": 9.0, "event": "start", **HEAD, "attempt": "1.0", "world_size": 4},
    {"time": 9.5, "event": "end", **HEAD, "attempt": "1.0", "status": 0, "reason": "done"},
]


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def test_an_outline_has_all_but_the_metrics_and_checkpoints_of_long_ago(run):
    many = [{**LINES[1 + step % 2], "step": step} for step in range(1000)]
    write(run, LINES[0], *many, LINES[3], LINES[4], *many, "{torn")
    outline, whole = history.read_outline(run), history.read_outline(run)
    assert [(item.name, item.began, item.seen) for item in outline.attempts] == [
        (item.name, item.began, item.seen) for item in whole.attempts
    ]
    for kind in ("start", "metrics", "checkpoint", "requeue"):
        assert outline.last(kind) == whole.last(kind)
    assert len(outline.events) == 3 + 2 * 64
    run.events.unlink()
    assert (
        history.read_outline(run).events
        == history.read_outline(run).attempts
        == history.read_newest(run).attempts
        == ()
    )


@pytest.mark.parametrize("after", [100, 5000], ids=["within a block", "in blocks before"])
def test_an_outline_has_the_newest_checkpoint_however_many_metrics_follow_it(run, after):
    """By it the lost steps of a failed attempt are counted: `status` said 0 % where `report` said 50 %."""
    saves = [{**LINES[2], "step": step} for step in (10, 20)]
    metrics = [{**LINES[1], "step": step} for step in range(after)]
    write(run, LINES[0], *saves, *metrics, LINES[3], LINES[4], *metrics[:9], LINES[5])
    outline = history.read_outline(run)
    assert outline.attempts[0].last("checkpoint").count("step") == 20
    assert outline.attempts[1].last("checkpoint") is None and len(outline.events) == 4 + 1 + 64 + 9


def write(run, *lines):
    run.events.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))


def test_events_are_grouped_by_attempt(run):
    write(run, *LINES)
    first, second = history.read_outline(run).attempts
    assert (first.events[0].job, first.name, first.began, first.seen) == ("7", "0.0", 1.0, 4.0)
    assert first.last("requeue").text("reason") == "preempted"
    assert first.last("start").count("world_size") == 4
    assert math.isnan(first.last("checkpoint").number("write_s"))
    assert second.last("requeue") is None and second.last("end").count("status") == 0


def test_attempts_stay_in_order_when_a_clock_is_set_back(run):
    """The job is done, whatever the time of its last attempt."""
    before = [{**line, "time": line["time"] + 3600} for line in LINES[:4]]
    write(run, *before, *LINES[4:])
    assert [attempt.name for attempt in history.read_outline(run).attempts] == ["0.0", "1.0"]
    (job,) = read_run(run).jobs
    assert [attempt.outcome.kind for attempt in job.attempts] == ["stopped", "done"]


@pytest.mark.parametrize("read", [history.read_outline, history.read_newest])
@pytest.mark.parametrize("size", [1, 10, 40, -1])
def test_a_torn_last_line_is_left_out_and_what_was_written_behind_it_is_not(run, read, size):
    write(run, *LINES[:3])
    torn = json.dumps(LINES[3])[:size]
    run.events.write_text(run.events.read_text() + torn)
    assert [event.kind for event in read(run).events] == ["start", "metrics", "checkpoint"]
    run.events.write_text(run.events.read_text() + f"{json.dumps(LINES[4])}\n")
    assert [event.time for event in read(run).events] == [1.0, 2.0, 3.0, 9.0]
    write(run, *LINES, {**LINES[0], "job": "8", "time": 20.0})
    whole = history.read_outline(run)
    assert [event.job for event in whole.of_job("8").events] == ["8"]
    assert whole.last("start").job == "8" and len(whole.all("start")) == 3


@pytest.mark.parametrize(
    "line",
    [
        "{torn",
        "[]",
        "7",
        json.dumps({"event": "start"}),
        json.dumps({"time": True, "event": "x"}),
        '{"time": 1}',
        '{"time": Infinity, "event": "x"}',
        '{"time": 1e300, "event": "x"}',
        '{"time": -1, "event": "x"}',
    ],
)
def test_what_is_no_record_is_left_out(run, line):
    write(run, line, LINES[0])
    assert [event.kind for event in history.read_outline(run).events] == ["start"]


def test_a_field_of_another_type_reads_as_nothing(run):
    write(run, {**LINES[1], "step": "ten", "total": None, "values": 3})
    (event,) = history.read_outline(run).events
    assert (event.number("step"), event.count("total"), event.text("values")) == (None, 0, "")
    write(run, {**LINES[1], "step": 10**400})
    (event,) = history.read_outline(run).events
    assert (event.number("step"), event.count("step")) == (None, 0), "no float holds it"


@given(st.binary(max_size=400))
def test_any_bytes_are_read(tmp_path_factory, content):
    run = RunDir(tmp_path_factory.getbasetemp())
    run.events.write_bytes(content)
    assert isinstance(history.read_outline(run).attempts, tuple)


def test_the_newest_part_is_enough_for_a_long_run(run):
    write(run, *[{**LINES[1], "time": float(number), "step": number} for number in range(2000)])
    newest = history.read_newest(run)
    assert newest.last("metrics").count("step") == 1999 and len(newest.events) < 2000
    assert not newest.is_whole and history.read_newest(run, size=2**20).is_whole
    assert history.read_newest(run, size=2**20).events[-len(newest.events) :] == newest.events


def test_a_log_is_parted_where_attempts_began(run):
    starts = [{**HEAD, "time": 1.0, "event": "attempt_start", "log_offset": 0}]
    starts.append({**starts[0], "time": 2.0, "attempt": "0.1", "log_offset": 500})
    write(run, *starts)
    parts = history.read_outline(run).of_job("7").log_parts()
    assert (parts["0.0"].begin, parts["0.0"].end, parts["0.1"].begin) == (0, 500, 500)


def test_blocks_of_metrics_alone_are_passed_over_and_lines_keep_their_numbers(run, monkeypatch):
    monkeypatch.setattr(history, "_BLOCK_BYTES", 300)
    many = [{**LINES[1], "step": step} for step in range(500)]
    write(run, *many, "{torn", *many, LINES[5], *many)
    outline = history.read_outline(run)
    assert [event.count("step") for event in outline.all("metrics")] == [*range(436, 500)] * 3
    assert outline.damage == ("events.jsonl: line 501 is cut off",)
    assert outline.last("end")


@pytest.fixture
def decoded(monkeypatch):
    """Return the lines that were decoded."""
    lines = []
    parse = files.parse_record
    for module in (files, history):
        monkeypatch.setattr(module, "parse_record", lambda line: lines.extend([line] * bool(line)) or parse(line))
    return lines


def test_of_a_long_run_few_lines_are_decoded(tmp_path, decoded):
    run = large_runs.make(tmp_path / "long", size=2**24)
    outline = history.read_outline(run)
    assert len(decoded) < 500 and outline.damage == ()
    assert [one.events[-1].kind for one in outline.attempts] == ["restart", "restart", "job_end"]
    decoded.clear()
    assert facts.read_job(run, large_runs.JOB).outcome.status == 77 and len(decoded) < 500


def strangers():
    end = json.dumps({**LINES[5], "time": 99.0}).encode() + b"\n"
    size = 2**24
    yield from (
        line * (size // len(line)) + end for line in (b"\n", b"{}\n", b"[" * 9999 + b"\n", b"x" * 2**19 + b"\n")
    )
    compact, straggler = (
        json.dumps({**LINES[1], "event": kind}, separators=(",", ":")) for kind in ("metrics", "other")
    )
    yield from (f"{line}\n".encode() * (size // len(line)) + end for line in (compact, straggler))
    yield bytes(size) + b"\n" + end
    yield json.dumps(LINES[0]).encode() + b"\n" + b"x" * 5_000_000 + b"\n" + end


@pytest.mark.parametrize("number", range(8))
def test_whatever_the_lines_are_few_are_decoded_and_the_end_is_found(run, decoded, number):
    run.events.write_bytes([*strangers()][number])
    outline = history.read_outline(run)
    assert outline.last("end").time == 99.0
    assert len(decoded) < 120_000 and sum(map(len, decoded)) < 2**23
    assert len(outline.damage) <= 100
    assert "and those behind it are not all read" in outline.damage[0]
    assert history.read_outline(run).of_job("7").last("end").time == 99.0


def test_a_hole_of_a_file_takes_no_time(run, decoded):
    write(run, LINES[0])
    os.truncate(run.events, 2**40)
    with run.events.open("ab") as file:
        file.write(b"\n" + json.dumps(LINES[5]).encode() + b"\n")
    outline = history.read_outline(run)
    assert [event.kind for event in outline.events] == ["start", "end"] and len(decoded) < 10
    assert [*history.read_frequent(run)[1]] == []


def test_of_too_many_metrics_some_are_read_from_everywhere(tmp_path, decoded, monkeypatch):
    run = large_runs.make(tmp_path / "long", size=2**23)
    count, events = history.read_frequent(run)
    assert count == len([*events]) == len(decoded) > 30_000
    decoded.clear()
    monkeypatch.setattr(history, "MOST_FREQUENT", 3000)
    some, events = history.read_frequent(run)
    found = [*events]
    assert {event.attempt for event in found} == {"0.0", "0.1", "0.2"}
    assert some <= 3000 and len(decoded) < 4000
