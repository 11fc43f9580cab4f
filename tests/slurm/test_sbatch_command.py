"""What sbatch answers is read right, whatever a site prints around it."""

from pathlib import Path

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm import sbatch_command as sbatch_command_module
from slurmddp.slurm.client import Answer, LostAnswerError, RefusedError
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


SBATCH = "sbatch: error: "


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            answer(1, err=f"{SBATCH}invalid partition specified: x\n{SBATCH}Batch job submission failed: Invalid\n"),
            *(ClusterError, "refused the job: invalid partition specified: x; Batch job submission failed: Invalid"),
        ),
        (answer(1, out="17\n", err=f"{SBATCH}no\n"), ClusterError, "refused the job: no"),
        (answer(out="Submitted\n"), LostAnswerError, "no job id"),
        (
            answer(1, err=f"{SBATCH}Batch job submission failed: Socket timed out on send/recv operation\n"),
            *(LostAnswerError, "Socket timed out"),
        ),
        (
            answer(1, err=f"{SBATCH}Unable to contact slurm controller (connect failure)\n"),
            *(ClusterError, "no Slurm controller answers"),
        ),
    ],
)
def test_what_is_no_job_is_refused_or_lost_in_one_line(said, kind, message):
    with pytest.raises(ClusterError, match=message) as caught:
        parse_sbatch(said)
    assert type(caught.value) is kind


def test_a_percent_sign_in_the_logs_folder_is_meant_literally_and_a_dependency_beats_the_scripts_own():
    command = sbatch_command(output=Path("/a%b/logs/%j.out"), dependency="afterany:17")
    assert command[-2:] == ["--output=/a%%b/logs/%j.out", "--dependency=afterany:17"]


def test_a_program_that_is_missing_or_cannot_be_started_is_told_so_in_one_line(tmp_path):
    with pytest.raises(ClusterError, match="sbatch was not found.*slurmddp run"):
        submit(["sbatch"], b"#!/bin/bash\n", {"PATH": str(tmp_path)})
    (tmp_path / "sbatch").write_text("")
    with pytest.raises(ClusterError, match="sbatch cannot be started: Permission denied; "):
        submit(["sbatch"], b"#!/bin/bash\n", {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Requested node configuration is not available", "; `slurmddp cluster` shows what there is"),
        ("invalid partition specified: gpuu", "; `slurmddp cluster` shows what there is"),
        ("Invalid license specification", "; `scontrol show licenses` lists what there is"),
        ("Invalid account or account/partition combination specified", "; `sacctmgr show assoc user=.*may use"),
        ("Invalid --begin specification", "; correct it, or leave it out: `sbatch --help` lists the options"),
    ],
)
def test_each_refusal_says_what_to_type(monkeypatch, said, hint):
    monkeypatch.setattr(
        sbatch_command_module.client, "ask", lambda *_, **__: answer(1, err=f"allocation failure: {said}")
    )
    with pytest.raises(RefusedError, match=f"{said}{hint}$"):
        sbatch_command_module.test_only(b"", {})
    with pytest.raises(ClusterError, match=f"{said}{hint}$"):
        sbatch_command_module.submit(["sbatch"], b"", {})
