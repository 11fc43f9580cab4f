"""What Slurm's programs answer is read right, whatever a site prints around it."""

from pathlib import Path

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, environment, parsing, queries, submission
from slurmddp.slurm.client import Answer, LostAnswerError
from slurmddp.slurm.job_info import JobId


def answer(status=0, out="", err=""):
    return Answer(status, out, err)


@pytest.mark.parametrize(
    ("out", "job"),
    [
        ("17\n", JobId("17")),
        ("17;alpha\n", JobId("17", "alpha")),
        ("Welcome to alpha!\n 12 users\n17\n", JobId("17")),
    ],
)
def test_the_id_is_found_among_a_sites_banners(out, job):
    assert submission.parse_sbatch(answer(out=out)) == job


def test_a_refusal_is_one_line_without_prefixes():
    err = (
        "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition\n"
    )
    with pytest.raises(ClusterError, match="refused the job: invalid partition specified: x; Batch job"):
        submission.parse_sbatch(answer(1, err=err))


def test_an_id_on_stdout_is_not_believed_when_sbatch_failed():
    with pytest.raises(ClusterError):
        submission.parse_sbatch(answer(1, out="17\n", err="sbatch: error: no\n"))


def test_no_id_is_an_error():
    with pytest.raises(ClusterError, match="no job id"):
        submission.parse_sbatch(answer(out="Submitted\n"))


def test_a_lost_answer_is_told_from_a_controller_that_is_not_there():
    with pytest.raises(LostAnswerError):
        submission.parse_sbatch(
            answer(1, err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")
        )
    with pytest.raises(ClusterError, match="no Slurm controller answers") as caught:
        submission.parse_sbatch(answer(1, err="sbatch: error: Unable to contact slurm controller (connect failure)\n"))
    assert not isinstance(caught.value, LostAnswerError)


def test_a_percent_sign_in_the_logs_folder_is_meant_literally():
    assert submission.sbatch_command(output=Path("/a%b/logs/%j.out"))[-1] == "--output=/a%%b/logs/%j.out"


def test_states_fall_to_unknown():
    rows = parsing.parse_jobs(
        "17|CANCELLED by 0|2026-01-02T03:04:05|None\n18|COMPLETED+|Unknown|\n19|BLURRED|N/A|x|y\n\n"
    )
    assert [(job.job_id, job.phase, job.ended) for job in rows] == [
        ("17", "cancelled", True),
        ("18", "done", True),
        ("19", "unknown", False),
    ]
    assert rows[0].submitted is not None and rows[1].submitted is None
    assert rows[2].reason == "x|y"


def test_a_submission_inherits_nothing_of_another_job():
    environ = {
        "SLURM_CONF": "c", "SLURM_JOB_ID": "1", "SLURM_CPU_BIND": "x", "SBATCH_PARTITION": "p", "RANK": "0",
        "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "PMI_RANK": "0", "PMIX_ID": "x", "PATH": "/bin",
        "TORCHELASTIC_RUN_ID": "x", "MY_RANK": "kept", "SLURMDDP_NODES": "2",
    }  # fmt: skip
    assert environment.submission_environment(environ) == {
        "SLURM_CONF": "c", "PATH": "/bin", "MY_RANK": "kept", "SLURMDDP_NODES": "2",
    }  # fmt: skip


def test_a_program_that_cannot_be_started_is_told_so_in_one_line(tmp_path):
    (tmp_path / "sbatch").write_text("")
    with pytest.raises(ClusterError, match="sbatch cannot be started: Permission denied; "):
        submission.submit(b"#!/bin/bash\n", output=Path("x"), environ={"PATH": str(tmp_path)})


def test_a_machine_without_slurm_is_told_so_in_one_line(tmp_path):
    with pytest.raises(ClusterError, match="sbatch was not found.*slurmddp run"):
        submission.submit(b"#!/bin/bash\n", output=Path("x"), environ={"PATH": str(tmp_path)})


RECORDED = (
    "JobId=2804394 JobName=two Requeue=7 UserId=root(0) GroupId=root(0) JobState=PENDING Reason=Dependency "
    "Dependency=afterany:2804393(unfulfilled) Requeue=1 Restarts=0 TimeLimit=00:01:00 TimeMin=N/A "
    "SubmitTime=2026-11-21T14:03:27 EligibleTime=Unknown StartTime=Unknown Partition=gpu ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList= NumNodes=1 StdOut=/w/jobs/two/logs/2804394.out Power= \n"
    "JobId=2804400 ArrayJobId=2804400 ArrayTaskId=1 JobName=s UserId=root(0) JobState=RUNNING Reason=None Requeue=0 "
    "Restarts=3 TimeLimit=365-00:00:00 EligibleTime=2026-11-21T14:04:19 PreemptEligibleTime=2026-11-21T15:00:00 "
    "Partition=low ExcNodeList=n[1-2] NodeList=n3 NumNodes=2-4 StdOut=/dev/null Power= \n"
)
"""Lines of 22.05.8, shortened."""


def test_what_the_controller_holds_of_jobs_is_read():
    first, second = parsing.parse_show(RECORDED)
    assert (first.job_id, first.name, first.phase, first.reason) == (
        "2804394",
        "two Requeue=7",
        "queued",
        "Dependency",
    )
    assert (first.requeue, first.restarts, first.excluded, first.eligible) == (True, 0, "", None)
    assert (first.partition, first.time_limit, first.nodes) == ("gpu", "00:01:00", 1)
    assert first.output == "/w/jobs/two/logs/2804394.out"
    assert (second.job_id, second.phase, second.reason, second.requeue) == ("2804400_1", "running", "", False)
    assert (second.restarts, second.nodes, second.excluded) == (3, 2, "n[1-2]")
    assert second.eligible is not None and second.eligible.replace(tzinfo=None).isoformat() == "2026-11-21T14:04:19"
    assert parsing.parse_show("No jobs in the system\n") == []


def test_a_dependency_beats_the_scripts_own():
    command = submission.sbatch_command(output=Path("x/%j.out"), dependency="afterany:17")
    assert command[-1] == "--dependency=afterany:17"


def test_a_controller_that_does_not_answer_or_refuses_is_told_in_its_words(tmp_path):
    scontrol = tmp_path / "scontrol"

    def says(words, status=1):
        scontrol.write_text(f"#!/bin/sh\necho '{words}' >&{2 if 'error' in words else 1}\nexit {status}\n")
        scontrol.chmod(0o755)
        return {"PATH": f"{tmp_path}:/bin:/usr/bin"}

    lost = "scontrol: error: Unable to contact slurm controller (connect failure)"
    with pytest.raises(ClusterError, match="no Slurm controller answers"):
        queries.show("17", says(lost))
    with pytest.raises(ClusterError, match="no Slurm controller answers"):
        client.order(queries.requeue_command("17"), says(lost))
    with pytest.raises(ClusterError, match="scontrol show job 17: slow"):
        queries.show("17", says("scontrol: error: slow"))
    with pytest.raises(ClusterError, match="scontrol --oneliner show nodes n7: Node n7 not found"):
        client.order(queries.nodes_command("n7"), says("Node n7 not found"))
    assert queries.show("17", says("slurm_load_jobs error: Invalid job id specified")) == []


@pytest.mark.parametrize(
    ("sacct", "state"),
    [
        (Answer(0, "17|FAILED|2026-11-21T10:00:00|None\n", ""), "FAILED"),
        (Answer(0, "17|RUNNING|2026-11-21T10:00:00|None\n", ""), "UNKNOWN"),
        (Answer(1, "", "accounting storage is disabled"), "UNKNOWN"),
        (LostAnswerError("sacct did not end within 60 s"), "UNKNOWN"),
    ],
)
def test_what_the_controller_has_forgotten_does_not_run(sacct, state, monkeypatch):
    """Slurm's programs are stand-ins."""

    def ask(command, _environ):
        if command[0] == "squeue":
            return Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
        if isinstance(sacct, Exception):
            raise sacct
        return sacct

    monkeypatch.setattr(client, "ask", ask)
    assert queries.job("17", {}).state == state
