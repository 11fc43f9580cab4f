"""Rows of jobs are read right from squeue and sacct, whatever stands around them; and nobody is asked for ever."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.slurm import parsing, queries
from slurmddp.slurm.job_info import Heard

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
    failed, waiting = parsing.parse_queue(QUEUE)
    assert (failed.job_id, failed.state, failed.nodes, failed.reason) == ("2807906", "FAILED", "n1", "NonZeroExitCode")
    assert (failed.elapsed_s, failed.limit_s, failed.exit_status) == (0, 365 * 86400, "")
    assert failed.submitted.replace(tzinfo=None) == datetime(2026, 11, 21, 23, 44, 12)  # noqa: DTZ001 the local time
    assert (waiting.job_id, waiting.number, waiting.name) == ("2807905_[1-3%1]", "2807905", "a|b")
    assert (waiting.started, waiting.limit_s, waiting.nodes) == (None, None, "")


def test_saccts_table_is_read():
    failed, task, first, second = parsing.parse_accounting(ACCOUNTS).rows
    assert (failed.state, failed.exit_status, failed.name, failed.limit_s) == ("FAILED", "3:0", "", None)
    assert (task.job_id, task.state, task.name, task.elapsed_s) == ("2807905_2", "CANCELLED", "a|b", 8)
    assert [(row.state, row.limit_s) for row in (first, second)] == [("REQUEUED", None), ("COMPLETED", 525600 * 60)]


def test_what_a_site_prints_around_it_is_left_out():
    banner = "Welcome to alpha!\nid=1|state=RUNNING\n17|RUNNING\n"
    assert parsing.parse_queue(banner + QUEUE + banner) == parsing.parse_queue(QUEUE)
    assert parsing.parse_accounting(banner + ACCOUNTS + banner).rows == parsing.parse_accounting(ACCOUNTS).rows


def test_columns_that_are_missing_or_new_change_no_state():
    (row,) = parsing.parse_queue("slurmddp|id=17|colour=red|state=RUNNING\nslurmddp|state=RUNNING\n")
    assert (row.job_id, row.state, row.name, row.submitted) == ("17", "RUNNING", "", None)
    (row,) = parsing.parse_accounting("Colour|State|JobID\nred|TIMEOUT|18\nblue|TIMEOUT\n").rows
    assert (row.job_id, row.state, row.limit_s) == ("18", "TIMEOUT", None)


@pytest.mark.parametrize("state", ["", "r", "Running", "17", "?", "NOT A STATE"])
def test_what_is_no_state_is_unknown(state):
    (row,) = parsing.parse_queue(f"slurmddp|id=17|state={state}|name=x")
    assert row.state == "UNKNOWN"


def test_an_answer_without_a_table_is_none():
    assert parsing.parse_accounting("JOB STATE\n17 RUNNING\n").silence == "sacct answered with no table"
    assert parsing.parse_accounting("\n").silence == "sacct answered nothing"


@given(st.text(max_size=200))
def test_any_text_is_read(text):
    parsing.parse_queue(text)
    parsing.parse_queue(f"slurmddp|id=17|{text}")
    parsing.parse_accounting(f"JobID|State|Start|NodeList\n{text}\n17|{text}")


@pytest.fixture
def says(tmp_path):
    """Return a function that puts a stand-in for one of Slurm's programs, a script, in the place of the real one."""

    def put(program, script):
        path = tmp_path / program
        path.write_text(f"#!/bin/sh\necho x >>{tmp_path}/{program}.calls\n{script}\n")
        path.chmod(0o755)
        return {"PATH": f"{tmp_path}:/bin:/usr/bin"}

    return put


def test_a_program_that_does_not_end_is_left(says):
    heard = queries.queue(["17"], says("squeue", "exec sleep 60"), timeout_s=0.5)
    assert heard.rows == () and "did not end" in heard.silence


def test_a_lost_answer_is_asked_for_once_more(says, tmp_path, monkeypatch):
    monkeypatch.setattr(queries, "PAUSE_S", 0)
    environ = says("squeue", "echo 'slurm_load_jobs error: Socket timed out on send/recv operation' >&2; exit 1")
    heard = queries.queue(["17"], environ, timeout_s=60)
    assert heard.silence == "Socket timed out on send/recv operation"
    assert (tmp_path / "squeue.calls").read_text() == "x\n" * queries.TRIES


def test_a_controller_that_is_not_there_is_asked_once(says, tmp_path):
    environ = says("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert queries.queue(["17"], environ, timeout_s=60).silence == "Unable to contact slurm controller"
    assert (tmp_path / "squeue.calls").read_text() == "x\n"


def test_a_job_that_nobody_knows_is_no_silence(says):
    environ = says("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queries.queue(["17"], environ, timeout_s=60) == Heard()
    environ = says("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queries.controller("17", environ, timeout_s=60) == Heard()
    environ = says("scontrol", "echo 'scontrol: error: slow' >&2; exit 1")
    assert queries.controller("17", environ, timeout_s=60).silence == "slow"


def test_an_accounting_that_lacks_a_column_is_asked_for_the_ones_that_all_have(says):
    script = """case "$*" in
  *TimelimitRaw*) echo 'sacct: error: Invalid field requested: "TimelimitRaw"' >&2; exit 1 ;;
esac
printf 'JobID|State|Submit|JobName\\n17|COMPLETED|2026-01-02T03:04:05|x\\n'"""
    heard = queries.accounting(["17"], None, says("sacct", script), timeout_s=60)
    assert [(row.job_id, row.state, row.name) for row in heard.rows] == [("17", "COMPLETED", "x")]


def test_without_slurm_there_is_silence():
    assert "squeue was not found" in queries.queue(["17"], {"PATH": "/nowhere"}, timeout_s=60).silence


def test_many_jobs_are_asked_for_by_their_user():
    ids = [str(number) for number in range(10000)]
    commands = queries.queue_command(ids), queries.accounting_command(ids, None, "JobID")
    assert all(sum(map(len, command)) < 1000 and any("--user=" in word for word in command) for command in commands)
    assert "--jobs=1,2" in queries.queue_command(["1", "2"]) and "--jobs=1,2" in queries.accounting_command(
        ["1", "2"], None, "JobID"
    )
