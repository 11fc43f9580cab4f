"""The guard brings the job back when Slurm has taken the node of its batch script from it, and leaves it alone else."""

from dataclasses import dataclass, field

import pytest

from slurmddp.batch.guard import guard
from slurmddp.errors import ClusterError
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.client import RefusedError
from slurmddp.slurm.job_info import JobInfo

WHOLE = JobInfo(job_id="17", state="RUNNING", source="scontrol", restarts=2, requeue=True, nodes="n[1-3]")
WITHOUT = WHOLE._replace(nodes="n[2-3]")
WAITS = WHOLE._replace(state="PENDING", restarts=3, nodes="")
SILENCE = ClusterError("no answer")


@dataclass
class FakeSlurm:
    """Answers for one job, and is the clock."""

    answers: list[JobInfo | Exception | None]
    """What it says each time that it is asked; the guard must not ask once more."""
    folder: RunDir
    refusals: list[Exception | None] = field(default_factory=list)
    orders: list[tuple[str, str]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def job(self, job_id: str) -> JobInfo | None:
        assert job_id == "17"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_signal(self, target: str, name: str) -> None:
        assert self.folder.hang("17", "2.1").exists(), "by it the ranks know that no peer answers"
        self._order(name, target)

    def requeue(self, job_id: str) -> None:
        self._order("requeue", job_id)

    def cancel(self, job_id: str) -> None:
        self._order("cancel", job_id)

    def _order(self, *order: str) -> None:
        self.orders.append(order)
        if self.refusals and (refusal := self.refusals.pop(0)):
            raise refusal


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Return a function that lets the guard of n1 work; it returns what Slurm was told, and the events."""
    monkeypatch.setenv("SLURMD_NODENAME", "n2")

    def run(*answers, refusals=()):
        folder = RunDir(tmp_path)
        slurm = FakeSlurm([*answers], folder, [*refusals])
        folder.attempt("17", "2.1").mkdir(parents=True)
        guard(slurm, folder, "17", 2, "n1", slurm)
        assert slurm.answers == []
        pauses = len(slurm.slept) - len(answers)
        assert pauses == (("USR2", "17") in slurm.orders and SILENCE not in refusals[:1]), "for the ranks to save"
        assert all(7.99 < seconds < 12.01 for seconds in slurm.slept), "10 s, more or less by a fifth"
        return slurm.orders, list(read_records(folder.events)) if folder.events.exists() else []

    return run


@pytest.mark.parametrize(
    "last",
    [None, WHOLE._replace(state="COMPLETING"), WHOLE._replace(restarts=3), WHOLE._replace(state="PENDING", nodes="")],
    ids=["gone", "ending", "started again", "waiting"],
)
def test_it_ends_with_the_job_and_does_nothing_while_the_node_is_there(play, last):
    assert play(WHOLE, WHOLE, last) == ([], [])


def test_the_job_is_requeued_when_the_node_of_its_script_is_lost(play, capsys):
    orders, events = play(WHOLE, WITHOUT, WAITS)
    assert orders == [("USR2", "17"), ("requeue", "17")], "the ranks on other nodes save first"
    (event,) = events
    reason = "lost node n1, on which the batch script ran"
    assert (event["event"], event["attempt"], event["host"]) == ("requeue", "2.1", "n2")
    assert (event["reason"], event["excluded"]) == (reason, [])
    assert capsys.readouterr().out.endswith(f"slurmddp: back into the queue: {reason}\n")


def test_another_lost_node_is_the_supervisors_business(play):
    assert play(WHOLE._replace(nodes="n[1,3]"), None) == ([], [])


def test_a_job_that_may_not_be_requeued_is_cancelled(play, capsys):
    """It would hold its nodes to the time limit, without a script."""
    no_requeue = WITHOUT._replace(requeue=False)
    assert play(no_requeue, no_requeue._replace(state="CANCELLED")) == ([("USR2", "17"), ("cancel", "17")], [])
    assert "may not be requeued (Requeue=0), and is cancelled" in capsys.readouterr().out


def test_ranks_that_cannot_be_told_do_not_keep_the_job(play):
    orders, events = play(WITHOUT, WAITS, refusals=[SILENCE])
    assert (orders[1:], len(events)) == ([("requeue", "17")], 1)


@pytest.mark.parametrize("refusal", [SILENCE, RefusedError("disabled")])
def test_a_slurm_that_does_not_answer_is_asked_again_and_the_requeue_noted_once(play, refusal, capsys):
    orders, events = play(SILENCE, WITHOUT, WITHOUT, WAITS, refusals=[None, refusal])
    assert orders == [("USR2", "17"), ("requeue", "17"), ("requeue", "17")]
    assert len(events) == 1
    assert f"the guard of n1: {refusal}" in capsys.readouterr().out
