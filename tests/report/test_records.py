"""What lies in a run's folder, torn and wrong things among it."""

import json

import pytest

from slurmddp.render import TEMPLATES
from slurmddp.report import records
from slurmddp.rundir import RunDir


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def test_submissions_are_read_also_with_less_in_them(run):
    lines = [
        {"job": "7", "time": "2026-11-21T23:47:59+00:00", "commit": "abc", "dirty": True, "directory": "/w"},
        {"job": "8", "time": 17, "commit": None, "dirty": "yes"},
        {"job": "nine"},
    ]
    run.submissions.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"job": "10", "ti')
    first, second = records.submitted(run)
    assert (first.time, first.commit, first.dirty) == (1795304879.0, "abc", True)
    assert (second.job, second.time, second.commit, second.dirty) == ("8", None, "", None)


def test_the_batch_scripts_words_are_found_among_others(run):
    run.batch_log("7").write_bytes(
        b"a banner \xff\n2026-11-21T23:47:59+0000 slurmddp: job 7, attempt 0.0, on n[1-2], output of the ranks in /r\n"
        b"2026-13-41T23:47:59+0000 slurmddp: job 7, attempt 0.1, on n1, output of the ranks in /r\n"
        b"2026-11-21T23:48:46+0000 slurmddp: job 7, attempt 0.0, ended with status 76: rank 1 on n1: \xff lost\n"
        b"2026-11-21T23:48:46+0000 slurmddp: job 7, atte"
    )
    start, end = records.said(run, ["7", "8"])
    assert (start.time, start.hosts, start.status) == (1795304879.0, "n[1-2]", None)
    assert (end.attempt, end.status, end.reason) == ("0.0", 76, "rank 1 on n1: \ufffd lost")


def test_a_status_of_thousands_of_digits_is_none(run):
    line = "2026-11-21T23:10:00+0000 slurmddp: job 7, attempt 0.0, ended with status "
    run.batch_log("7").write_text(f"{line}{'9' * 5000}: x\n{line}76: y\n")
    assert [said.reason for said in records.said(run, ["7"])] == ["y"]


def test_the_templates_say_what_is_looked_for():
    """The words of templates/ending.j2, with their variables filled in."""
    text = (TEMPLATES / "ending.j2").read_text()
    assert 'ddprun_say "job $DDPRUN_JOB, attempt $DDPRUN_ATTEMPT, on $SLURM_JOB_NODELIST, output of the ranks' in text
    assert "job $DDPRUN_JOB, attempt $DDPRUN_ATTEMPT, ended with status $DDPRUN_STATUS: $DDPRUN_REASON" in text
    assert 'echo "$newest $alive_s"' in text


def test_the_ages_at_requeues(run):
    (run.logs / "7").mkdir()
    run.requeues("7").write_text(f"none 40\nstep-000000470 47\ntorn\nnone {'9' * 400}\n")
    assert (records.lived(run, "7"), records.lived(run, "8")) == ((40.0, 47.0), ())


@pytest.mark.parametrize("content", [b"nodes = ", b"\xff", None])
def test_a_specification_that_cannot_be_read_is_none(run, content):
    if content is not None:
        run.spec.write_bytes(content)
    assert records.spec(run) == {}
