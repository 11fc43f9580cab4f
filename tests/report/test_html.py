"""The page: whole, self-contained, and nothing of a hostile text leaves its element."""

import base64
import hashlib
import json
import math
import re
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, Page

from slurmddp.diagnose.rule_types import Diagnosis, Line
from slurmddp.monitoring import status
from slurmddp.report.collect import collect_report, make_json, read_spec
from slurmddp.report.html import render_page
from slurmddp.runs.history import Event, describe_event
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo, Listing


def of(run, **changes):
    return render_page(collect_report(run, {"PATH": "/nowhere", **changes}, now=1795305300.0))


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "jobs" / "r")
    made.path.mkdir(parents=True)
    made.create()
    return made


def write(run, *events):
    head = {"job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}
    lines = ({"time": 1795305000.0 + number, "event": "", **head, **event} for number, event in enumerate(events))
    run.events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_the_recorded_run_has_the_figures_that_were_counted_by_hand(recorded):
    report = collect_report(recorded, {"PATH": "/nowhere"}, now=1795305300.0)
    found = make_json(report)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["seconds"] == {
        "startup": pytest.approx(95.939, abs=1e-3),
        "useful": pytest.approx(234.807, abs=1e-3),
        "held": pytest.approx(2.215, abs=1e-3),
        "lost": pytest.approx(7.279, abs=1e-3),
        "ending": pytest.approx(4.783, abs=1e-3),
        "queued": pytest.approx(9.593, abs=1e-3),
        "absent": pytest.approx(15.385, abs=1e-3),
    }
    assert (found["goodput"], found["ettr"]) == (
        pytest.approx(0.68056, abs=1e-5),
        pytest.approx(0.63461, abs=1e-5),
    )
    assert found["steps"] == {"taken": 2905, "kept": 2813, "repeated": 92}
    assert [(attempt["job_id"], attempt["attempt"], attempt["outcome"]) for attempt in found["attempts"]] == [
        ("2807912", "0.0", "stopped"),
        ("2807912", "1.0", "crashed"),
        ("2807912", "1.1", "stopped"),
        ("2807915", "0.0", "done"),
    ]
    assert (found["phase"], found["jobs"]) == ("done", [{"job_id": "2807912"}, {"job_id": "2807915"}])


def test_the_recorded_run_as_a_page(recorded):
    content = of(recorded)
    read = Page(content)
    for words in ("fashion", "finished", "68.1 %", "63.5 %", "2,813", "lost work", "crashed", "HF_TOKEN=***", "n[1-2]"):
        assert words in read.text
    assert "hf_abcdef" not in read.text
    for title in ("loss", "samples a second", "steps a second", "accuracy", "lr"):
        assert f"{title} over steps" in read.text
    pictures = [attributes for tag, attributes in read.elements if tag == "svg" and attributes.get("role") == "img"]
    assert len(pictures) >= 11 and all({"aria-label", "aria-labelledby"} & set(item) for item in pictures)
    assert read.tags().count("title") > len(pictures) and read.tags().count("desc") == len(pictures)


def test_each_attempt_that_ended_badly_says_why_by_its_own_files(run):
    missing = "python: can't open file '/data/train.py': [Errno 2] No such file"
    for attempt, reason in (("0.0", "ValueError: batch 7 is empty"), ("0.1", "stop signal received"), ("0.2", missing)):
        run.attempt("7", attempt).mkdir(parents=True)
        run.rank_record("7", attempt, 1).write_text(f"77 rank 1 on n2: {reason}\n")
    run.rank_record("7", "0.1", 0).write_text("75 rank 0 on n1: stop signal received at step 5 (preempted)\n")
    start, restart = {"event": "start", "world_size": 2, "nodes": 2}, {"event": "restart", "status": 76, "reason": "x"}
    second, third = {"attempt": "0.1"}, {"attempt": "0.2"}
    write(run, start, restart, start | second, restart | second | {"status": 75}, start | third, restart | third)
    found = make_json(collect_report(run, {"PATH": "/nowhere"}, now=1795305300.0))
    assert [attempt["cause"] for attempt in found["attempts"]] == ["exception", None, "file-missing"]
    text = Page(of(run)).text
    assert "the program raised ValueError: batch 7 is empty" in text and "rank 1 on n2" in text


def test_the_page_loads_nothing_and_runs_nothing(recorded):
    content = of(recorded)
    read = Page(content)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base", "foreignobject", "use"} & set(
        read.tags()
    )
    for _, attributes in read.elements:
        assert not {"src", "href", "xlink:href", "srcset", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert b"http:" not in content and b"https:" not in content
    css = re.search(r"<style>(.*?)</style>", content.decode(), re.DOTALL)[1]
    patterns = {f"#p-{kind}" for kind in ("startup", "lost", "ending", "unmeasured", "queued", "absent")}
    assert set(re.findall(r"url\((.*?)\)", css)) <= patterns
    assert "@import" not in css
    (policy,) = [dict(a)["content"] for t, a in read.elements if dict(a).get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"event": "start", "world_size": 4}],
        [{"event": "loop", "step": 0}, {"event": "metrics", "step": 1, "values": {"loss": 1.0}}],
        [{"event": "metrics", "step": 1, "values": {"loss": "nan", "x": "inf"}}],
        [
            {"event": "metrics", "step": 0, "values": {"loss": 1e308, "x": -1e308}},
            {"event": "metrics", "step": 9**18, "values": {"loss": -1e308}},
        ],
        [{"event": "straggler", "slow_rank": 1, "backward_s": "inf", "others_s": "nan"}],
        [{"event": "start"}, {"event": "requeue", "reason": 5, "excluded": 5}],
    ],
    ids=["nothing", "a start", "one point", "strange values", "extremes", "an endless rank", "no list of nodes"],
)
def test_a_run_of_little_or_strange_is_a_page(run, events):
    write(run, *events)
    read = Page(of(run))
    assert "Attempts" in read.text and "nan%" not in of(run).decode()


def test_nothing_of_a_hostile_text_leaves_its_element(run):
    texts = "reason cause checkpoint launcher slow_host what advice check level on_host"
    names = dict.fromkeys(texts.split(), HOSTILE)
    kinds = (
        *["start", "resume", "notice", "restart", "requeue", "checkpoint-failed", "straggler", "finding", "end"],
        HOSTILE,
    )
    head = {"job": HOSTILE, "attempt": HOSTILE, "host": HOSTILE}
    write(
        run,
        *({"event": kind, **head, **names, "status": 77, "excluded": [HOSTILE]} for kind in kinds),
        {"event": "metrics", **head, "step": 1, "values": {HOSTILE: 1.0}},
    )
    run.submissions.write_text(
        json.dumps({"job": "7", "commit": HOSTILE, "directory": HOSTILE, "version": HOSTILE, "code": HOSTILE})
    )
    run.spec.write_text(
        f'command = [{json.dumps(HOSTILE.encode("utf-8", "replace").decode())}]\n[recorded.origins]\ncommand = "x"'
    )
    content = of(run)
    read = Page(content)
    assert not {"script", "img"} & set(read.tags())
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    assert "</script><script>alert(1)</script>" in read.text
    assert b"\x1b" not in content and "\u202e" not in read.text and r"\x1b[2J\u202e" in read.text


def test_a_record_of_a_submission_with_values_of_other_types_has_a_page(run):
    run.submissions.write_text(json.dumps({"job": "7", "commit": 123, "dirty": "no", "code": 4, "directory": [5]}))
    text = Page(of(run)).text
    assert "123" in text and "uncommitted changes" not in text


TEXTS = st.text(max_size=60) | st.text(alphabet="<>/&\"'`=-! scriptyle\x00\n\u2028", max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_any_texts_change_no_element_of_the_page(run, reason, name, host):
    def elements(reason, name, host):
        write(
            run,
            {"event": "start", "host": host, "launcher": host},
            {"event": "metrics", "step": 1, "values": {name: 1.0}},
            {"event": "end", "status": 77, "reason": reason},
        )
        return Page(of(run)).tags()

    assert elements(reason or "r", name, host or "h") == elements("reason", "name", "host")


def test_a_diagnosis_is_told_in_full(recorded, monkeypatch):
    found = Diagnosis(
        job_id="2807915",
        name="fashion",
        cause="exception",
        what="rank 3 raised <b>ValueError</b>",
        rank=3,
        host="n2",
        attempt="9.0",
        evidence=(Line("logs/3.out", 4, "ValueError: </pre>boom"),),
        others="3 ranks then lost their peer",
        advice="correct the program",
        again=False,
    )
    monkeypatch.setattr("slurmddp.report.collect.diagnose", lambda *_: found)
    log = recorded.rank_log("2807915", "9.0", 3)
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number} \x1b[1m<b>\n" for number in range(100)) + "token=s3cret\n")
    done, failed = '"status": 0, "reason": "done"', '"status": 77, "reason": "rank 3 on n2: ValueError"'
    recorded.events.write_text(recorded.events.read_text().replace(done, failed))
    text = Page(of(recorded)).text
    shown = (found.what, found.others, found.advice, "first on rank 3 on n2", "ValueError: </pre>boom", "logs/3.out:4")
    for words in shown:
        assert words in text
    assert "Trying again would end the same way." in text and "failed" in text
    assert "the last lines of rank 3" in text and "line 61 <b>" in text and "line 99 <b>" in text
    assert "line 60 <b>" not in text and "s3cret" not in text


def test_only_the_newest_of_very_many_attempts_are_drawn(run):
    write(run, *({"event": "start", "attempt": f"0.{number}"} for number in range(300)))
    read = Page(of(run))
    assert "The newest 200 of 300 attempts" in read.text and "300: job 7, attempt 0.299" in read.text


def test_of_very_many_checkpoints_and_notices_some_are_marked(run):
    write(
        run, {"event": "start"}, *({"event": kind, "step": 1} for _ in range(5000) for kind in ("checkpoint", "notice"))
    )
    content = of(run)
    assert content.count(b'class="notice"') < 1100 and content.count(b'class="tick"') < 600


def test_the_page_of_very_many_checkpoints_is_small(run):
    saves = [{"event": "checkpoint", "step": step, "held_s": 0.4, "write_s": step % 7} for step in range(20_000)]
    write(run, {"event": "start"}, {"event": "loop", "step": 0}, *saves)
    content = of(run)
    assert len(content) < 500_000 and "20,000 were saved; they held up useful training for" in Page(content).text


def test_records_that_could_not_be_read_are_on_the_page_and_in_json(recorded):
    with recorded.events.open("a") as file:
        file.write('{"time": 1, "event": "sta\n')
    report = collect_report(recorded, {"PATH": "/nowhere"}, now=1795305300.0)
    (line,) = make_json(report)["damage"]
    assert line.startswith("events.jsonl: line ")
    text = Page(render_page(report)).text
    assert "Records that could not be read" in text and line in text


def test_a_strange_number_inside_a_finding_is_a_text_in_json(run):
    write(run, {"event": "finding", "check": "x", "seen": {"gpus": [math.inf, 1]}})
    (found,) = make_json(collect_report(run, {"PATH": "/nowhere"}, now=1795305300.0))["findings"]
    assert found["seen"] == {"gpus": ["inf", 1]}


@pytest.fixture
def setting(run):
    """Return a setting of a sweep that was in the second of two arrays."""
    arrays = ((7, ["1"], "00:00"), (8, ["1", "2"], "01:00"))
    records = (
        {"job": str(job), "time": f"2026-11-22T{clock}:00+00:00", "settings": [{"lr": value} for value in values]}
        for job, values, clock in arrays
    )
    run.submissions.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (run.path / "lr=2").mkdir()
    return RunDir(run.path / "lr=2")


def test_of_a_sweeps_setting_its_own_tasks_are_asked_for_and_not_all_of_the_array(setting, monkeypatch):
    """Else another setting that still runs would be taken for this one."""
    asked = []
    monkeypatch.setattr(status, "query_jobs", lambda targets, *_, **__: asked.append(targets[0]) or [])
    write(setting, {"event": "start", "job": "8_1"})
    found = make_json(collect_report(setting, {}, now=1795309300.0))
    assert [target.jobs for target in asked] == [("8_1",)]
    assert found["jobs"] == [{"job_id": "8"}]


USE = {"0": ["n1", 2.04, 6.8e9, 0.97, 64e9, 80e9, 612.4], "1": ["n2", 1.5, 7e9, 0.58, 62.1e9, 80e9, 590.0]}


def test_the_ranks_use_is_a_table_with_the_least_busy_gpu_first(run):
    write(run, {"event": "start"}, {"event": "usage", "ranks": USE})
    text = Page(of(run)).text
    rows = ("1n258.0 %62.1 of 80 GB590 W1.57 GB", "0n197.0 %64 of 80 GB612 W26.8 GB")
    assert text.index(rows[0]) < text.index(rows[1])


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        5,
        {"0": "n1"},
        {"0": []},
        {"0": ["n1"]},
        {"0": ["n1", "x", 1]},
        {"0": ["n1", 1]},
        {"0": ["n1", "nan", "inf"]},
    ],
)
def test_a_strange_record_of_use_is_left_out(run, ranks):
    """A record without ranks ended `report` with a traceback."""
    write(run, {"event": "start"}, {"event": "usage", **({} if ranks is None else {"ranks": ranks})})
    content = of(run)
    assert "What they used" not in Page(content).text and b"nan" not in content.replace(b"nan, inf", b"")


def test_a_run_that_goes_on_says_when_it_will_be_done_and_when_its_time_is_over(run, monkeypatch):
    begin = datetime.fromtimestamp(1795305000.0).astimezone()
    row = JobInfo("7", "RUNNING", source="squeue", name="r", started=begin, limit_s=3600)
    monkeypatch.setattr(queries, "controller", lambda *_, **__: Listing((row,)))
    run.submissions.write_text(json.dumps({"job": "7", "time": begin.isoformat()}))
    steps = ({"event": "metrics", "step": 10 * step, "total": 100_000, "values": {}} for step in range(9))
    write(run, {"event": "attempt_start", "nodes": "n1"}, {"event": "start"}, {"event": "loop", "step": 0}, *steps)
    text = Page(of(run)).text
    assert "time left, at the pace of now2h41m, until" in text and "before the last step" in text


def test_a_long_text_is_cut(run):
    write(run, {"event": "end", "status": 77, "reason": "x" * 10**6})
    assert len(of(run)) < 200_000


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [("metrics", {}, ""), ("cancel", {"by": "ada"}, "cancelled by `slurmddp cancel` (ada)")],
)
def test_an_event_has_words(kind, fields, words):
    assert describe_event(Event(0, kind, "7", "0.0", fields)) == words


def test_secrets_of_the_command_are_masked(run):
    run.spec.write_text(
        'command = ["train.py", "--token", "abc123", [104, 255]]\nnodes = 2\nrequeue = true\nenv = ["A=1", "API_KEY=x"]'
    )
    text = Page(of(run)).text
    assert "abc123" not in text and "API_KEY=x" not in text
    assert "train.py --token '***' 'h\\xff'" in text and "API_KEY=***" in text and "true" in text


def test_a_command_of_one_machine_alone_needs_no_slurm(run):
    write(run, {"event": "start", "job": "local-1"}, {"event": "end", "job": "local-1", "status": 0, "reason": "done"})
    report = collect_report(run, {"PATH": "/nowhere"}, now=1795305300.0)
    assert (report.phase, report.status, report.submissions) == ("done", None, ())


def test_the_damaged_records_of_a_run_without_slurm_are_named_too(run):
    write(run, {"event": "start", "job": "local-1"})
    with run.events.open("a") as file:
        file.write('{"time": 1, "event": "sta')
    text = Page(of(run)).text
    assert "Records that could not be read" in text and "events.jsonl: line" in text


def test_a_secret_in_the_line_of_the_set_up_that_failed_is_not_on_the_page(run):
    write(run, {"event": "end", "status": 77})
    run.submissions.write_text('{"job": "7", "time": "2026-11-21T20:00:00+00:00"}\n')
    said = "1 set-up failed with status 1: export HF_TOKEN=hf_abcdef; false\n"
    run.batch_log("7").write_text(said)
    run.batch_record("7").write_text(said)
    content = of(run)
    assert b"HF_TOKEN=***" in content and b"hf_abcdef" not in content


@pytest.mark.parametrize("content", [b"nodes = ", b"\xff", None])
def test_a_specification_that_cannot_be_read_is_none(tmp_path, content):
    run = RunDir(tmp_path)
    if content is not None:
        run.spec.write_bytes(content)
    assert read_spec(run) == {}
