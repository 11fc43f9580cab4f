"""What the supervisor makes of the answers of Slurm's programs, which are recorded texts here."""

import pytest

from slurmddp.batch.controller import Controller
from slurmddp.errors import ClusterError
from slurmddp.slurm import client
from slurmddp.slurm.client import Answer, RefusedError

SHOWN = (
    "JobId=17 JobName=train UserId=me(1000) JobState=RUNNING Reason=None Requeue=1 Restarts=2 RunTime=00:01:02 "
    "TimeLimit=00:10:00 PreemptTime=2026-11-22T10:00:00 ReqNodeList=n[1-2] ExcNodeList=n7 BatchHost=n1 NumNodes=2\n"
)


@pytest.fixture
def says(monkeypatch):
    """Return a function that sets the next answers; the commands that were asked are in its list `asked`."""
    answers, asked = [], []

    def ask(command, environ, **_):
        del environ
        asked.append(list(command))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set_answers(*given):
        answers[:] = given

    monkeypatch.setattr(client, "ask", ask)
    set_answers.asked = asked
    return set_answers


def test_a_job_is_what_scontrol_shows(says):
    says(Answer(0, SHOWN, ""))
    job = Controller({}).job("17")
    assert (job.state, job.restarts, job.batch_host, job.preempted) == ("RUNNING", 2, "n1", True)
    assert (job.limit_s, job.elapsed_s, job.required_nodes, job.excluded_nodes) == (600, 62, "n[1-2]", "n7")


def test_a_job_that_slurm_does_not_know_is_told_from_no_answer(says):
    says(Answer(1, "", "slurm_load_jobs error: Invalid job id specified"))
    assert Controller({}).job("17") is None
    for silence in (Answer(1, "", "Unable to contact slurm controller"), Answer(0, "a banner\n", "")):
        says(silence)
        with pytest.raises(ClusterError):
            Controller({}).job("17")


@pytest.mark.parametrize("text", ["Requested operation is presently disabled", "Access/permission denied"])
def test_a_refusal_is_told_from_a_controller_that_is_busy(says, text):
    says(Answer(1, "", f"{text} for job 17"))
    with pytest.raises(RefusedError, match=text.partition("/")[0]):
        Controller({}).requeue("17")
    says(Answer(1, "", "Unable to contact slurm controller (connect failure)"))
    with pytest.raises(ClusterError):
        Controller({}).requeue("17")
    says(Answer(0, "", ""))
    Controller({}).requeue("17_3")
    assert says.asked[-1] == ["scontrol", "requeue", "Incomplete", "17_3"]


def test_nodes_are_left_out_of_the_job_by_its_own_id(says):
    says(Answer(0, "", ""))
    Controller({}).update("17_3", "ExcNodeList", "n7,n2")
    assert says.asked == [["scontrol", "update", "JobId=17_3", "ExcNodeList=n7,n2"]]


def test_lost_nodes_are_those_that_sinfo_shows_as_such(says):
    says(Answer(0, "n1 allocated\nn2 down*\nn3 failing\nn4 allocated*\nn2 down*\n", ""))
    assert Controller({}).lost_nodes("n[1-4]") == ("n2", "n3", "n4")


def test_what_is_good_to_know_may_be_missing(says):
    says(ClusterError("no"), ClusterError("no"), ClusterError("no"), ClusterError("no"))
    slurm = Controller({})
    assert slurm.lost_nodes("n1") == slurm.partition_nodes("gpu") == ()
    assert slurm.address("n1") == "" and slurm.script_digest("17") is None


def test_names_and_addresses_are_those_of_slurm(says):
    says(Answer(0, "n1\nn2\nn1\n", ""), Answer(0, "NodeName=n1 Arch=x86_64 NodeAddr=10.77.0.1 NodeHostName=n1\n", ""))
    assert Controller({}).partition_nodes("gpu,all") == ("n1", "n2")
    assert Controller({}).address("n1") == "10.77.0.1"


def test_jobs_that_wait_for_the_success_of_a_job_are_told_to_wait_for_its_end(says):
    listed = (
        "21 afterok:17(unfulfilled),afterany:5(unfulfilled)\n22 afterok:170(unfulfilled)\n23 (null)\n"
        "24 afternotok:17(unfulfilled)\n25 afterok:17_*(unfulfilled)\n26 afterok:16(failed)?afterok:17(unfulfilled)\n"
    )
    says(Answer(0, listed, ""), Answer(0, "", ""), Answer(0, "", ""))
    assert Controller({}).release_dependents("17") == ["21", "26"]
    assert [command[-1] for command in says.asked[1:]] == [
        "Dependency=afterany:17,afterany:5",
        "Dependency=afterok:16?afterany:17",
    ]
    says(Answer(0, "21 afterok:17(unfulfilled)\n", ""), Answer(1, "", "Job dependency problem"))
    with pytest.raises(ClusterError):
        Controller({}).release_dependents("17")
