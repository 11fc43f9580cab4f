"""What sbatch answers is read right, whatever a site prints around it."""

from pathlib import Path

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm.client import Answer, LostAnswerError
from slurmddp.slurm.job_info import JobId
from slurmddp.slurm.sbatch_command import parse_sbatch, sbatch_command, submit


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
    assert parse_sbatch(answer(out=out)) == job


def test_a_refusal_is_one_line_without_prefixes():
    err = (
        "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition\n"
    )
    with pytest.raises(ClusterError, match="refused the job: invalid partition specified: x; Batch job"):
        parse_sbatch(answer(1, err=err))


def test_an_id_on_stdout_is_not_believed_when_sbatch_failed():
    with pytest.raises(ClusterError):
        parse_sbatch(answer(1, out="17\n", err="sbatch: error: no\n"))


def test_no_id_is_an_error():
    with pytest.raises(ClusterError, match="no job id"):
        parse_sbatch(answer(out="Submitted\n"))


def test_a_lost_answer_is_told_from_a_controller_that_is_not_there():
    with pytest.raises(LostAnswerError):
        parse_sbatch(
            answer(1, err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")
        )
    with pytest.raises(ClusterError, match="no Slurm controller answers") as caught:
        parse_sbatch(answer(1, err="sbatch: error: Unable to contact slurm controller (connect failure)\n"))
    assert not isinstance(caught.value, LostAnswerError)


def test_a_percent_sign_in_the_logs_folder_is_meant_literally():
    assert sbatch_command(output=Path("/a%b/logs/%j.out"))[-1] == "--output=/a%%b/logs/%j.out"


def test_a_dependency_beats_the_scripts_own():
    command = sbatch_command(output=Path("x/%j.out"), dependency="afterany:17")
    assert command[-1] == "--dependency=afterany:17"


def test_a_program_that_cannot_be_started_is_told_so_in_one_line(tmp_path):
    (tmp_path / "sbatch").write_text("")
    with pytest.raises(ClusterError, match="sbatch cannot be started: Permission denied; "):
        submit(b"#!/bin/bash\n", output=Path("x"), environ={"PATH": str(tmp_path)})


def test_a_machine_without_slurm_is_told_so_in_one_line(tmp_path):
    with pytest.raises(ClusterError, match="sbatch was not found.*slurmddp run"):
        submit(b"#!/bin/bash\n", output=Path("x"), environ={"PATH": str(tmp_path)})
