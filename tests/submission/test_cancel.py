"""Jobs that are cancelled stay so; stand-ins for the states of a Slurm that puts one back meanwhile."""

import pytest

from slurmddp.errors import ClusterError
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs import facts, history
from slurmddp.runs.facts import is_finished
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.slurm import client, environment
from slurmddp.slurm.client import NO_CLUSTER, Answer
from slurmddp.slurm.states import outcome_of
from slurmddp.submission import cancel


def job(job_id, state="RUNNING", **fields):
    return JobStatus(job_id=job_id, run=None, name="a", outcome=outcome_of(state), **fields)


@pytest.fixture
def told(monkeypatch):
    """Return a function that lets squeue show these states, one answer after another; then the orders given."""
    orders = []

    def show(*answers, refusal=""):
        waiting = list(answers)

        def ask(command, _environ, **_options):
            if command[0] == "scancel":
                orders.append(command[1:])
                return Answer(int(bool(refusal)), "", refusal)
            rows = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            lines = [f"slurmddp|id={job_id}|state={state}|name=a" for job_id, state in rows.items()]
            return Answer(0, "\n".join(lines), "")

        monkeypatch.setattr(client, "ask", ask)
        return orders

    monkeypatch.setattr(cancel, "_POLL_S", 0)
    return show


def cancelled(*jobs):
    said = []
    return [(done.job_id, done.state) for done in cancel.cancel(jobs, {}, said.append)], said


def test_a_job_is_cancelled_once_while_it_leaves(told):
    orders = told({"17": "COMPLETING"}, {"17": "COMPLETING"}, {"17": "CANCELLED"})
    done, said = cancelled(job("17"))
    assert (done, orders) == ([("17", "CANCELLED")], [["17"]])
    assert said == ["waiting for the end of job 17; Ctrl-C ends only the waiting"]


def test_who_cancelled_a_job_is_in_its_runs_events(told, tmp_path):
    run = RunDir(tmp_path)
    told({"17": "CANCELLED", "18": "CANCELLED", "19": "COMPLETED"})
    began = {number: job(number)._replace(run=run, progress=Progress(attempt="0.0")) for number in ("17", "19")}
    cancelled(began["17"], job("18")._replace(run=run, progress=Progress()), began["19"])
    events = history.read_outline(run).events
    assert [(event.kind, event.job, event.attempt) for event in events] == [
        ("cancel", "17", "0.0"),
        ("cancel", "18", ""),
    ]
    for job_id in ("17", "18"):
        ended = facts.read_job(run, job_id).outcome
        assert (ended.word, ended.reason) == ("CANCELLED", f"cancelled by `slurmddp cancel` ({environment.user()})")
    assert history.read_outline(run).of_job("18").attempts == ()


def test_of_a_sweep_it_is_in_the_events_of_each_setting(told, tmp_path):
    run = RunDir(tmp_path)
    append_record(run.submissions, {"job": "17", "settings": [{"lr": "1"}, {"lr": "2"}, {"lr": "3"}]})
    begun, waiting = RunDir(tmp_path / "lr=1"), RunDir(tmp_path / "lr=2")
    begun.attempt("17_0", "1.0").mkdir(parents=True)
    told({"17_0": "CANCELLED", "17_1": "CANCELLED"})
    cancelled(job("17_0")._replace(run=run, progress=Progress()), job("17_[1]", "PENDING")._replace(run=run))
    for setting, job_id, attempt in ((begun, "17_0", "1.0"), (waiting, "17_1", "")):
        (event,) = history.read_outline(setting).events
        assert (event.kind, event.job, event.attempt) == ("cancel", job_id, attempt)
        ended = facts.read_job(setting, job_id).outcome
        assert (ended.word, ended.reason) == ("CANCELLED", f"cancelled by `slurmddp cancel` ({environment.user()})")
    assert not (tmp_path / "lr=3").exists() and not run.events.exists()


def test_it_is_cancelled_also_where_that_cannot_be_written_down(told, tmp_path):
    """As on a full disk, where the folder of a setting that waits cannot be made."""
    (tmp_path / "file").touch()
    told({"17": "CANCELLED"})
    assert cancelled(job("17")._replace(run=RunDir(tmp_path / "file/lr=1")))[0] == [("17", "CANCELLED")]


def test_a_run_that_has_come_to_its_end_meanwhile_stays_finished(told, tmp_path):
    run = RunDir(tmp_path)
    told({"17": "CANCELLED"})
    end = {"time": 1.0, "event": "end", "job": "17", "attempt": "0.0", "rank": 0, "host": "n1", "status": 0}
    append_record(run.events, end)
    cancelled(job("17")._replace(run=run, progress=Progress(attempt="0.0")))
    assert is_finished(run)


def test_a_job_that_waited_in_a_finished_run_is_cancelled_and_the_run_stays_finished(told, tmp_path):
    run = RunDir(tmp_path)
    told({"18": "CANCELLED"})
    end = {"time": 1.0, "event": "job_end", "job": "17", "attempt": "0.0", "rank": None, "host": "n1", "status": 0}
    append_record(run.events, end)
    cancelled(job("18", "PENDING")._replace(run=run))
    assert facts.read_job(run, "17").outcome.kind is Kind.DONE and is_finished(run)
    ended = facts.read_job(run, "18").outcome
    assert (ended.word, ended.reason) == ("CANCELLED", f"cancelled by `slurmddp cancel` ({environment.user()})")


def test_what_was_cancelled_before_the_wait_was_ended_is_on_record(told, tmp_path, monkeypatch):
    told({"17": "CANCELLED", "18": "RUNNING"})
    runs = {number: RunDir(tmp_path / number) for number in ("17", "18")}
    for run in runs.values():
        run.path.mkdir()
    began = [job(number)._replace(run=run, progress=Progress(attempt="0.0")) for number, run in runs.items()]
    monkeypatch.setattr(cancel.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cancelled(*began)
    assert [run.events.exists() for run in runs.values()] == [True, False]


def interrupted(_):
    raise KeyboardInterrupt


GONE = {"17": "CANCELLED"}


@pytest.mark.parametrize(
    ("state", "answers"),
    [
        (("17", "RUNNING"), [{"17": "COMPLETING"}, {"17": "PENDING"}, GONE]),
        (("17_[1-3%2]", "PENDING"), [{"17_0": "CANCELLED", "17_1": "RUNNING"}, {"17_0": "CANCELLED", **GONE}]),
        (("17", "BLURRED"), [{"17": "BLURRED"}, GONE]),
    ],
    ids=["requeued meanwhile", "an array of which a task goes on", "a state that is new in its Slurm"],
)
def test_a_job_that_goes_on_is_cancelled_again(told, monkeypatch, state, answers):
    orders = told(*answers)
    assert cancelled(job(*state))[0] == [("17", "CANCELLED")]
    assert orders == [["17"], ["17"]]
    monkeypatch.setattr(cancel, "query_jobs", lambda *_: [job(*state)])
    assert [item.job_id for item in cancel.unfinished_jobs([], {})] == [state[0]]


def test_a_job_that_slurm_has_forgotten_is_gone(told):
    told({})
    assert cancelled(job("17"), job("18"))[0] == [("17", "CANCELLED"), ("18", "CANCELLED")]
    assert cancel.cancel([], {}, print) == []


def test_a_job_that_stays_is_told_so(told, monkeypatch):
    told({"17": "RUNNING"})
    monkeypatch.setattr(cancel, "CANCEL_LIMIT_S", 0)
    with pytest.raises(ClusterError, match="job 17 not gone after 0 s; type the same again"):
        cancelled(job("17"))


def test_a_job_of_somebody_else_is_refused_in_slurms_words(told):
    told({"17": "RUNNING"}, refusal="scancel: error: Kill job error on job id 17: Access/permission denied")
    with pytest.raises(ClusterError, match="scancel: Kill job error on job id 17: Access/permission denied"):
        cancelled(job("17"))


def test_a_controller_that_stops_answering_is_told(monkeypatch):
    monkeypatch.setattr(client, "ask", lambda command, *_, **__: Answer(command[0] == "squeue", "", "no"))
    with pytest.raises(ClusterError, match=r"the controller does not say whether the jobs have ended \(no\)"):
        cancelled(job("17"))


def test_only_what_waits_or_runs_is_cancelled_the_last_first(monkeypatch):
    found = [job("5", "COMPLETED"), job("7"), job("8", "PENDING"), job("7")]
    monkeypatch.setattr(cancel, "query_jobs", lambda *_: found)
    assert [item.job_id for item in cancel.unfinished_jobs([Target(None, ("7",))], {})] == ["8", "7"]


def test_a_job_of_which_the_run_alone_knows_the_end_is_not_cancelled(monkeypatch):
    """Slurm has forgotten it, and its word is none of Slurm's."""
    ended = job("17")._replace(outcome=Outcome(kind=Kind.CRASHED, status=76))
    monkeypatch.setattr(cancel, "query_jobs", lambda *_: [ended, job("18")])
    assert [item.job_id for item in cancel.unfinished_jobs([Target(None, ("17", "18"))], {})] == ["18"]


def test_why_the_last_job_of_a_run_is_not_known_is_told(monkeypatch, tmp_path):
    run, said = RunDir(tmp_path / "a"), []
    unknown = [job(number, "UNKNOWN")._replace(run=run, meaning=f"not {number}") for number in ("7", "8")]
    unknown.append(unknown[0]._replace(job_id="6", meaning="forgotten"))
    monkeypatch.setattr(cancel, "query_jobs", lambda *_: unknown)
    assert cancel.unfinished_jobs([Target(run, ("7", "8"))], {}, said.append) == []
    assert said == ["job 8 of run a: not 8"]


@pytest.mark.parametrize(
    ("found", "verb", "said"),
    [
        ({"silence": "down"}, "requeued", r"nothing was requeued: the controller does not answer \(down\)"),
        (
            {"silence": f"squeue was not found; {NO_CLUSTER}"},
            *("cancelled", "^nothing was cancelled: squeue was not found; log in to the cluster$"),
        ),
        ({"state": "UNKNOWN"}, "cancelled", "there is no job 7; nothing was cancelled"),
    ],
)
def test_nothing_is_cancelled_blindly(monkeypatch, found, verb, said):
    monkeypatch.setattr(cancel, "query_jobs", lambda *_: [job("7", **found)])
    with pytest.raises(ClusterError, match=said):
        cancel.unfinished_jobs([], {}, verb=verb)
