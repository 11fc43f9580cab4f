"""What squeue, sacct, scontrol and sinfo print is read right, whatever stands around it."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.slurm.parsing import parse_accounting, parse_nodes_down, parse_queue, parse_show

QUEUE = (
    "slurmddp|id=2807906|state=FAILED|submit=2026-11-21T23:44:12|start=2026-11-21T23:44:12|end=2026-11-21T23:44:12|"
    "elapsed=0:00|limit=365-00:00:00|nodes=n1|partition=gpu|user=root|reason=NonZeroExitCode|name=wrap\n"
    "slurmddp|id=2807905_[1-3%1]|state=PENDING|submit=2026-11-21T23:44:12|start=N/A|end=N/A|elapsed=0:00|"
    "limit=UNLIMITED|nodes=|partition=gpu|user=root|reason=JobArrayTaskLimit|name=a|b\n"
)
"""Of 22.05.8."""


ACCOUNTS = (
    "JobID|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|ExitCode|Partition|NodeList|User|Reason|JobName\n"
    "2807906|FAILED|2026-11-21T23:44:12|2026-11-21T23:44:12|2026-11-21T23:44:12|0||3:0||n1|root|None|allocation\n"
    "2807905_2|CANCELLED by 0|2026-11-21T23:44:12|2026-11-21T23:44:28|2026-11-21T23:44:36|8|UNLIMITED|0:0|gpu|n1|root|"
    "JobArrayTaskLimit|a|b\n"
    "2807910|REQUEUED|2026-11-21T23:44:37|2026-11-21T23:44:37|2026-11-21T23:44:39|2|Partition_Limit|0:0|gpu|n1|root|"
    "None|wrap\n"
    "2807910|COMPLETED|2026-11-21T23:44:39|2026-11-21T23:44:45|Unknown|1|525600|0:0|gpu|n1|root|BeginTime|wrap\n"
)
"""Of 22.05.8; the first line is that of a job whose start slurmdbd has not heard of yet."""


def test_squeues_lines_are_read():
    failed, waiting = parse_queue(QUEUE)
    assert (failed.job_id, failed.state, failed.nodes, failed.reason) == ("2807906", "FAILED", "n1", "NonZeroExitCode")
    assert (failed.elapsed_s, failed.limit_s, failed.exit_status) == (0, None, ""), "it had no limit"
    assert failed.submitted.replace(tzinfo=None) == datetime(2026, 11, 21, 23, 44, 12)  # noqa: DTZ001 the local time
    assert (waiting.job_id, waiting.number, waiting.name) == ("2807905_[1-3%1]", "2807905", "a|b")
    assert (waiting.started, waiting.limit_s, waiting.nodes) == (None, None, "")


def test_saccts_table_is_read():
    failed, task, first, second = parse_accounting(ACCOUNTS).jobs
    assert (failed.state, failed.exit_status, failed.name, failed.limit_s) == ("FAILED", "3:0", "", None)
    assert (task.job_id, task.state, task.name, task.elapsed_s) == ("2807905_2", "CANCELLED", "a|b", 8)
    assert [(row.state, row.limit_s) for row in (first, second)] == [("REQUEUED", None), ("COMPLETED", None)]


def test_what_a_site_prints_around_it_is_left_out():
    banner = "Welcome to alpha!\nid=1|state=RUNNING\n17|RUNNING\n"
    assert parse_queue(banner + QUEUE + banner) == parse_queue(QUEUE)
    assert parse_accounting(banner + ACCOUNTS + banner).jobs == parse_accounting(ACCOUNTS).jobs


def test_columns_that_are_missing_or_new_change_no_state():
    (row,) = parse_queue("slurmddp|id=17|colour=red|state=RUNNING\nslurmddp|state=RUNNING\n")
    assert (row.job_id, row.state, row.name, row.submitted) == ("17", "RUNNING", "", None)
    (row,) = parse_accounting("Colour|State|JobID\nred|TIMEOUT|18\nblue|TIMEOUT\n").jobs
    assert (row.job_id, row.state, row.limit_s) == ("18", "TIMEOUT", None)


def test_states_fall_to_unknown():
    states = {"17": "CANCELLED by 0", "18": "COMPLETED+", "19": "BLURRED", "20": "EXPEDITING"}
    table = "".join(f"{job}|{state}|Unknown\n" for job, state in states.items())
    found = parse_accounting(f"JobID|State|Submit\n{table}").jobs
    assert [(job.job_id, job.phase, job.has_ended) for job in found] == [
        ("17", "cancelled", True),
        ("18", "done", True),
        ("19", "unknown", False),
        ("20", "queued", False),
    ]
    assert (found[0].cancelled_by, found[0].submitted) == ("0", None)
    strange = parse_queue("".join(f"slurmddp|id=1|state={word}|name=x\n" for word in ("", "r", "17", "?", "NOT A")))
    assert {job.state for job in strange} == {"UNKNOWN"} and len(strange) == 5


def test_an_answer_without_a_table_is_none():
    assert parse_accounting("JOB STATE\n17 RUNNING\n").silence == "sacct answered with no table"
    assert parse_accounting("\n").silence == "sacct answered nothing"


@given(st.text(max_size=200))
def test_any_text_is_read(text):
    parse_queue(text)
    parse_queue(f"slurmddp|id=17|{text}")
    parse_accounting(f"JobID|State|Start|NodeList\n{text}\n17|{text}")


RECORDED = (
    "JobId=2804394 JobName=two Requeue=7 UserId=root(0) GroupId=root(0) JobState=PENDING Reason=Dependency "
    "Dependency=afterany:2804393(unfulfilled) Requeue=1 Restarts=0 TimeLimit=00:01:00 TimeMin=N/A "
    "SubmitTime=2026-11-21T14:03:27 EligibleTime=Unknown StartTime=Unknown Partition=gpu ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList= NumNodes=1 StdOut=/w/my jobs/two/logs/2804394.out Power= \n"
    "JobId=2804400 ArrayJobId=2804400 ArrayTaskId=1 JobName=s UserId=root(0) JobState=RUNNING Reason=None Requeue=0 "
    "Restarts=3 TimeLimit=365-00:00:00 EligibleTime=2026-11-21T14:04:19 PreemptEligibleTime=2026-11-21T15:00:00 "
    "Partition=low ExcNodeList=n[1-2] NodeList=n3 NumNodes=2-4 StdOut=/dev/null Power= \n"
)
"""Lines of 22.05.8, shortened."""


def test_the_id_of_a_job_is_that_which_squeue_prints():
    """Of tasks that wait together, and of a part of a heterogeneous job."""
    rest = "JobName=s UserId=root(0) JobState=PENDING"
    lines = (
        f"JobId=7 ArrayJobId=7 ArrayTaskId=1-2%1 {rest}",
        f"JobId=8 ArrayJobId=7 ArrayTaskId=0 {rest}",
        "JobId=9 HetJobId=9 HetJobOffset=0 JobName=s HetJobIdSet=9-10 UserId=root(0)",
        "JobId=10 HetJobId=9 HetJobOffset=1 JobName=s HetJobIdSet=9-10 UserId=root(0)",
    )
    jobs = parse_show("\n".join(lines))
    assert [job.job_id for job in jobs] == ["7_[1-2%1]", "7_0", "9+0", "9+1"] and {job.name for job in jobs} == {"s"}


def test_what_the_controller_holds_of_jobs_is_read():
    first, second = parse_show(RECORDED)
    assert (first.job_id, first.name, first.phase, first.reason) == ("2804394", "two Requeue=7", "queued", "Dependency")
    assert (first.requeue, first.restarts, first.excluded_nodes, first.eligible) == (True, 0, "", None)
    assert (first.partition, first.limit_s, first.node_count, first.nodes) == ("gpu", 60, 1, "")
    assert first.output == "/w/my jobs/two/logs/2804394.out"
    assert (second.job_id, second.phase, second.reason, second.requeue) == ("2804400_1", "running", "", False)
    assert (second.restarts, second.node_count, second.excluded_nodes) == (3, 2, "n[1-2]")
    assert second.eligible is not None and second.eligible.replace(tzinfo=None).isoformat() == "2026-11-21T14:04:19"
    assert parse_show("No jobs in the system\n") == []
    assert (second.limit_s, second.nodes, second.source) == (None, "n3", "scontrol")


ALL = (
    "JobId=17 JobName=x UserId=ada(1000) GroupId=ada(1000) JobState=RUNNING Reason=None Requeue=1 Restarts=1 "
    "ExitCode=0:0 RunTime=00:01:30 TimeLimit={limit} SubmitTime=2026-11-21T14:00:00 StartTime=2026-11-21T14:01:00 "
    "EndTime=2026-11-21T14:02:00 PreemptTime={preempted} ReqNodeList=n[1-2] NodeList=n[1-2] BatchHost=n1 NumNodes=2 "
    "StdErr=/e StdIn=/dev/null StdOut=/o Power= \n"
)
"""Lines of 22.05.8, shortened."""


def test_every_value_of_a_job_is_read():
    (job,) = parse_show(ALL.format(limit="UNLIMITED", preempted="None"))
    assert (job.user, job.batch_host, job.nodes, job.required_nodes) == ("ada", "n1", "n[1-2]", "n[1-2]")
    assert (job.elapsed_s, job.limit_s, job.exit_status, job.preempted) == (90, None, "0:0", False)
    assert (job.output, job.errors) == ("/o", "/e")
    assert (job.ended - job.started).total_seconds() == 60
    (job,) = parse_show(ALL.format(limit="INVALID", preempted="2026-11-21T14:01:30"))
    assert (job.limit_s, job.preempted) == (0, True)


@pytest.mark.parametrize(
    ("limit", "preempted", "state"),
    [
        ("00:20:00", "2026-11-21T14:01:30", "PREEMPTED"),
        ("00:02:00", "2026-11-21T14:01:30", "TIMEOUT"),
        ("00:20:00", "None", "TIMEOUT"),
        ("UNLIMITED", "2026-11-21T14:01:30", "TIMEOUT"),
    ],
)
def test_the_end_of_the_grace_time_is_not_that_of_the_time_limit(limit, preempted, state):
    """Before 24.05 Slurm has both as TIMEOUT; without preemption it can be the end of a reservation."""
    shown = ALL.replace("RUNNING Reason=None", "TIMEOUT Reason=TimeLimit")
    (job,) = parse_show(shown.format(limit=limit, preempted=preempted))
    assert (job.state, job.reason) == (state, "TimeLimit" if state == "TIMEOUT" else "")


def test_of_a_program_that_shows_no_preemption_a_time_limit_stays_one():
    shown = "slurmddp|id=17|state=TIMEOUT|elapsed={}|limit=20:00|name=x"
    states = [job.state for elapsed in ("0:51", "20:25") for job in parse_queue(shown.format(elapsed))]
    assert states == ["TIMEOUT", "TIMEOUT"]


def test_what_a_program_does_not_show_is_not_known():
    (job,) = parse_queue("slurmddp|id=17|state=RUNNING|name=x")
    assert (job.requeue, job.restarts, job.node_count, job.limit_s) == (None, None, None, None)
    (job,) = parse_show("JobId=17 JobName=x UserId=root(0) JobState=RUNNING\n")
    assert (job.requeue, job.restarts, job.node_count, job.eligible) == (None, None, None, None)


def test_nodes_that_are_down_or_silent_are_lost():
    assert parse_nodes_down("n1 idle\nn2 down*\nn2 down*\nn3 allocated*\nn4 failing\n\n") == ("n2", "n3", "n4")
