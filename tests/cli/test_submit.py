"""`submit`: what it asks before, and `--wait` when waiting fails. Slurm is not asked here."""

import json

import pytest
from command_line import SLURMDDP, on_a_terminal, typed

from slurmddp import cli
from slurmddp.cli.submit import _wait
from slurmddp.diagnose import diagnosis
from slurmddp.diagnose.rule_types import Diagnosis
from slurmddp.errors import ClusterError
from slurmddp.monitoring import follow
from slurmddp.monitoring import status as monitoring_status
from slurmddp.monitoring.status import JobStatus
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import sbatch_command
from slurmddp.slurm.job_info import JobId
from slurmddp.submission.submit_once import Submitted


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterError("squeue: no answer")])
def test_the_id_is_printed_even_if_the_wait_fails(error, monkeypatch, capsys, tmp_path):
    def end(*_args, **_options):
        raise error

    monkeypatch.setattr(follow, "wait_for_job", end)
    done = Submitted(JobId("17"), RunDir(tmp_path))
    with pytest.raises(type(error)):
        _wait(done, done.run, "17", show=False, as_json=True)
    assert json.loads(capsys.readouterr().out)["jobs"][0]["job_id"] == "17"


def test_a_failure_is_said_once(monkeypatch, capsys, tmp_path):
    """By the diagnosis; the details do not repeat the reason and what to type."""
    failed = Outcome(kind=Kind.FAILED, status=77, reason="rank 1 on n1: ValueError: boom", state="FAILED")
    run = RunDir(tmp_path / "r")
    status = JobStatus(job_id="17", run=run, name="r", outcome=failed, meaning=failed.reason, nodes=("n1",))
    found = Diagnosis(job_id="17", name="r", cause="exception", what="ValueError: boom", rank=1, state="FAILED")
    monkeypatch.setattr(follow, "wait_for_job", lambda *_, notice, **_named: notice("job 17 is FAILED") or failed)
    monkeypatch.setattr(diagnosis, "diagnose_in_time", lambda *_: found)
    monkeypatch.setattr(monitoring_status, "query_jobs", lambda *_: [status])
    assert _wait(Submitted(JobId("17"), run), run, "17", show=False, as_json=False) == 1
    said = capsys.readouterr().err
    assert (said.count("boom"), said.count("is FAILED"), said.count("next:")) == (1, 1, 0)
    assert "where       n1" in said and "r (job 17), FAILED: ValueError: boom [exception]" in said


def test_the_bundled_example_is_submitted_after_a_question_on_a_terminal(tmp_path):
    status, said = on_a_terminal(str(SLURMDDP), "submit", cwd=tmp_path, answer=b"n\n")
    assert status == 130 and b"No script was given. Train the bundled example on all of a node? [y/N]" in said
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("words", ["--nodes 2 --gpus-per-node 8", "--dry-run", "-- --epochs 1", "--epochs 1"])
def test_the_bundled_example_that_was_asked_for_is_submitted_without_a_question(words, tmp_path):
    assert "sbatch was not found" in typed("submit", *words.split(), cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("train.py --json --force", "--json --force; what is for slurmddp stands before 'train.py'"),
        ("train.py -p low -b 4", "-p; what is for slurmddp stands before 'train.py'"),
        ("-m pkg --json", "--json; what is for slurmddp stands before '-m'"),
        ("train.py --lr 1 --steps 5 --name a", ""),
        ("job.sh --name zz --lr 1", "--name; what is for slurmddp stands before 'job.sh'"),
        ("job.sh --json --mem=4G", "--json --mem; what is for slurmddp stands before 'job.sh'"),
        ("-- job.sh --name zz", ""),
        ("-- train.py --json", ""),
    ],
)
def test_it_says_which_of_its_own_options_the_program_gets(words, passed, tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / "job.sh").write_text('#!/bin/bash\nsrun python train.py "$@"\n')
    said = typed("submit", *words.split(), cwd=tmp_path).stderr.splitlines()
    assert said[:-1] == ([f"passed to the program: {passed}"] if passed else [])


def test_render_takes_its_diff_behind_the_script_too(tmp_path):
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n")
    done = typed("render", "train.sbatch", "--diff", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert done.returncode == 0 and "passed to" not in done.stderr


def test_render_says_that_the_words_of_a_script_are_not_in_its_text(tmp_path):
    (tmp_path / "train.sbatch").write_text('#!/bin/bash\nsrun python train.py "$@"\n')
    done = typed("render", "train.sbatch", "--lr", "0 1", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert done.returncode == 0 and done.stderr.splitlines()[-1].endswith("as in: sbatch FILE --lr '0 1'")


def test_a_dry_run_says_which_line_of_an_own_script_starts_the_ranks(monkeypatch, capsys, tmp_path):
    """On stderr, as `submit` does; stdout is the script alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sbatch_command, "test_only", lambda *_: "accepted")
    (tmp_path / "own.sbatch").write_text("#!/bin/bash\nsrun python a.py\nsrun python b.py\n")
    assert cli.run_command_line(["submit", "--dry-run", "own.sbatch"]) == 0
    printed = capsys.readouterr()
    assert "line 2 starts the ranks; what stands as it was: line 3" in printed.err
    assert printed.out.startswith("#!/bin/bash\n") and "starts the ranks" not in printed.out


@pytest.mark.parametrize("options", [[], ["--set", "lr=1,2"]])
def test_a_sweep_of_a_batch_script_is_told_what_a_sweep_takes(options, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py\n")
    done = typed("sweep", *options, "job.sh", cwd=tmp_path, PATH="/usr/bin:/bin")
    (said,) = done.stderr.splitlines()
    assert done.returncode == 2 and "a sweep takes" in said and "--set lr=" in said and "train.py --lr {lr}" in said
