"""The page of a sweep and that of all runs: what they count, what is marked, where their names lead."""

import json
import re
from dataclasses import replace

import pytest
from command_line import typed
from report_pages import HOSTILE, NOW, Page

from slurmddp.report import collect
from slurmddp.report.collect import collect_rows, make_json
from slurmddp.report.html import render_runs
from slurmddp.runs import facts, lookup
from slurmddp.runs.history import read_outline
from slurmddp.runs.layout import RunDir

ENVIRON = {"PATH": "/nowhere"}


def rows_of(folder, since=0.0):
    return collect_rows(lookup.find([], str(folder), local=True), ENVIRON, since, NOW)


def page_of(folder, since=0.0):
    return Page(render_runs(RunDir(folder), rows_of(folder, since), since=since, now=NOW))


def test_all_runs_with_their_failures_by_cause(folder):
    rows = {row.name: make_json(row) for row in rows_of(folder)}
    assert len(rows) == 6
    crashed, recorded = rows["crashed"], rows["fashion"]
    assert (crashed["outcome"], crashed["steps"]) == ("done", {"taken": 110, "kept": 100, "repeated": 10})
    assert crashed["gpu_hours"] == pytest.approx(8 * 154 / 3600) and crashed["ettr"] == pytest.approx(100 / 154)
    assert [attempt["cause"] for attempt in crashed["attempts"]] == ["exception", None]
    assert (recorded["goodput"], recorded["steps"]["kept"]) == (pytest.approx(0.68, abs=0.01), 2813)
    assert rows["lrs/lr=1e-3,kind=adam"]["attempts"] == []
    text = page_of(folder).text
    assert "Failures by cause" in text and "exception1n1crashed" in text
    assert "6runs: 5 done, 1 unknown" in text and "GPU-hours by day" in text


def test_the_rows_of_one_page_say_the_same_as_the_page_of_the_run(folder):
    for row in rows_of(folder):
        whole = make_json(collect.collect_report(row.run, ENVIRON, now=NOW))
        same = ("run", "outcome", "gpu_hours", "ettr", "steps", "requeues", "begin", "end")
        if row.name != "fashion":  # of which an outline has too few checkpoints to tell what they held up
            assert {key: whole[key] for key in same} == {key: make_json(row)[key] for key in same}


def test_the_events_of_each_run_are_read_once(folder, monkeypatch):
    read = []
    monkeypatch.setattr(facts, "read_outline", lambda run: read.append(run) or read_outline(run))
    assert sorted(row.run for row in rows_of(folder)) == sorted(read)


def test_only_runs_with_something_on_record_since_a_time_are_shown(folder):
    assert [row.name for row in rows_of(folder, NOW - 3590)] == ["fashion", "crashed", *SETTINGS]
    assert "crashed" not in [row.name for row in rows_of(folder, NOW - 600)]
    assert "crashed" not in page_of(folder, NOW - 600).text


SETTINGS = ["lrs/lr=1e-2,kind=sgd", "lrs/lr=1e-2,kind=adam", "lrs/lr=1e-3,kind=sgd"]


def test_the_hours_are_those_since_the_time(folder):
    """The run of two nodes with four GPUs each began at NOW - 3600 and ended after 154 seconds."""
    text = page_of(folder, NOW - 3600 + 100).text
    (hours,) = re.findall(r"^([0-9.]+)GPU-hours$", text, re.MULTILINE)
    others = sum(make_json(row)["node_hours"] for row in rows_of(folder, NOW - 3500) if row.name == "fashion")
    assert float(hours) == pytest.approx(8 * 54 / 3600 + others, rel=0.01)


def test_a_name_leads_to_the_page_of_a_run_that_has_one(folder):
    (folder / "lrs" / "lr=1e-2,kind=adam" / "report.html").write_text("")
    (folder / "crashed" / "report.html").write_text("")
    links = [attributes["href"] for tag, attributes in page_of(folder).elements if tag == "a"]
    assert sorted(links) == ["crashed/report.html", "lrs/lr%3D1e-2%2Ckind%3Dadam/report.html"]


def test_a_sweep_has_its_settings_the_best_first(folder):
    done = typed("report", "lrs", cwd=folder.parent)
    assert (done.returncode, done.stdout) == (0, f"{folder / 'lrs' / 'report.html'}\n"), done.stderr
    text = Page((folder / "lrs" / "report.html").read_bytes()).text
    assert text.index("lr=1e-2,kind=adam \u2605 best") < text.index("lr=1e-3,kind=sgd") < text.index("lr=1e-2,kind=sgd")
    assert "loss over lr" in text and "loss over kind" in text and "The best first, by loss" in text
    assert text.count("\u2605") == 1


def test_of_a_sweep_the_highest_value_can_be_the_best(folder):
    found = json.loads(typed("report", "lrs", "--by", "accuracy", "--highest", "--json", cwd=folder.parent).stdout)
    best, *_, last = found["runs"]
    assert (best["name"], best["settings"]) == ("lr=1e-2,kind=adam", {"lr": "1e-2", "kind": "adam"})
    assert best["metrics"] == {"loss": 0.4, "accuracy": 0.6} and last["metrics"] == {}
    assert not (folder / "lrs" / "report.html").exists()


def test_a_sweep_without_a_number_is_in_its_order(folder):
    for events in folder.glob("lrs/*/events.jsonl"):
        events.unlink()
    found = json.loads(typed("report", "lrs", "--json", cwd=folder.parent).stdout)
    assert [row["settings"]["lr"] for row in found["runs"]] == ["1e-2", "1e-2", "1e-3", "1e-3"]
    assert typed("report", "lrs", cwd=folder.parent).returncode == 0
    assert "No setting has logged a number" in (folder / "lrs" / "report.html").read_text()


def test_all_runs_by_the_command(folder):
    done = typed("report", "--all", "--since", "2026-11-01", cwd=folder.parent)
    assert (done.returncode, done.stdout) == (0, f"{folder / 'report.html'}\n"), done.stderr
    assert "Runs that have recorded something since 2026-11-01 00:00:00" in (folder / "report.html").read_text()
    found = json.loads(typed("report", "--all", "--since", "2026-11-01", "--json", cwd=folder.parent).stdout)
    names = {"crashed", "fashion", *SETTINGS, "lrs/lr=1e-3,kind=adam"}
    assert {row["run"] for row in found["runs"]} == {str(folder / name) for name in names}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("crashed", "--all"), "--all is about every run; leave it out, or leave the name out"),
        (("crashed", "--since", "7d"), "--since needs --all; add it, or leave --since out"),
        (("crashed", "--highest"), "--by and --highest are for a sweep; name one, or leave them out"),
        (
            ("--all", "--since", "soon"),
            "'soon' is not a number of days, hours or minutes, as in 7d, 12h, 30m, nor a day",
        ),
        (("lrs", "--by", "accurcy"), "accuracy"),
        (("--all", "--runs-dir", "empty"), "there is no run in empty; --runs-dir names another folder"),
    ],
)
def test_mistakes(folder, words, said):
    (folder.parent / "empty").mkdir()
    done = typed("report", *words, cwd=folder.parent)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("since", ["99999999999999d", "1950-01-01"])
def test_a_time_before_all_times_means_everything(folder, since):
    found = json.loads(typed("report", "--all", "--since", since, "--json", cwd=folder.parent).stdout)
    assert (found["since"], len(found["runs"])) == (0.0, 6)
    assert typed("report", "--all", "--since", since, cwd=folder.parent).returncode == 0


def test_the_pages_of_a_thousand_runs_are_small(folder):
    rows = rows_of(folder)
    (crashed,) = [row for row in rows if row.name == "crashed"]
    folders = [RunDir(folder / f"a-run-with-quite-a-long-name-{number}") for number in range(1200)]
    many = [replace(crashed, facts=crashed.facts._replace(folder=one)) for one in folders]
    content = render_runs(RunDir(folder), many, since=NOW - 30 * 86400, now=NOW)
    assert len(content) < 500_000 and b"1,000 of 1200" in content


def test_nothing_of_a_hostile_name_leaves_its_element(folder):
    (folder / "crashed").rename(folder / "<script>alert(1)<")
    run = RunDir(folder / "<script>alert(1)<")
    run.report.write_text("")
    run.events.write_text(run.events.read_text().replace("ValueError", json.dumps(HOSTILE)[1:-1]))
    read = page_of(folder)
    assert "script" not in read.tags() and "<script>alert(1)<" in read.text
    assert [attributes["href"] for tag, attributes in read.elements if tag == "a"] == [
        "%3Cscript%3Ealert%281%29%3C/report.html"
    ]
