"""Which run a changed program gets, on a real Slurm: `train`, `train-2`, or a question."""

import hashlib
import json
import shutil
import time
from pathlib import Path

import pytest
from polling import ASK_SLURM_S, until

from slurmddp import cli
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import record_direct_submission


@pytest.fixture
def submit(slurm, slurm_env, tmp_path, monkeypatch, capfd):
    """Return a function that submits train.py with arguments; its jobs are cancelled at the end."""
    monkeypatch.chdir(tmp_path)
    for name, value in slurm_env.items():
        monkeypatch.setenv(name, value)
    Path("train.py").write_text("")
    ids = []

    def submit(*words, status=0, options=("--hold",)):
        ended = cli.run_command_line(["submit", "--ntasks-per-node=1", *options, "train.py", *words])
        printed = capfd.readouterr()
        assert ended == status, printed.err
        ids.extend(() if "--dry-run" in options else printed.out.split())
        return printed

    yield submit
    slurm("scancel", *ids)


def pretend(name, *, step=None, status=None):
    """Leave what an attempt of the run leaves: its folder, a checkpoint, its end."""
    run = RunDir(Path.cwd() / "jobs" / name)
    job_id = json.loads(run.submissions.read_text().splitlines()[-1])["job"]
    run.attempt(job_id, "0.0").mkdir(parents=True)
    if step is not None:
        folder = run.checkpoints / f"step-{step:09}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    if status is not None:
        head = {"time": time.time(), "job": job_id, "attempt": "0.0", "rank": 0, "host": "n1"}
        run.events.write_text(json.dumps(head | {"event": "end", "status": status, "reason": ""}) + "\n")
    return job_id


def gone(slurm, wait_for_job, job_id):
    slurm("scancel", job_id)
    wait_for_job(job_id)


def test_another_argument_is_another_run_and_the_same_one_finds_its_run_again(submit, slurm, wait_for_job):
    first = submit("--lr", "0.1")
    assert f"train: 1 node, 1 rank, partition {slurm_partition(slurm)}" in first.err
    job_id = pretend("train", status=77)
    again = submit("--lr", "0.2")
    assert "run train has another command: '--lr 0.1' became '--lr 0.2'; this is run train-2" in again.err
    gone(slurm, wait_for_job, job_id)
    gone(slurm, wait_for_job, pretend("train-2"))
    submit("--lr", "0.1")
    assert "this is run train-2\n" in submit("--lr", "0.2").err.splitlines(keepends=True), "why it was begun is known"
    assert sorted(path.name for path in Path("jobs").iterdir() if path.is_dir()) == ["train", "train-2"]


def test_a_job_whose_script_was_passed_to_sbatch_may_have_another_program(submit, slurm, wait_for_job):
    submit("--lr", "0.1")
    run = RunDir(Path.cwd() / "jobs" / "train")
    known = json.loads(run.submissions.read_text())["sha256"]
    gone(slurm, wait_for_job, pretend("train", step=5))
    record_direct_submission(run, "4000000", time="2026-01-05T10:00:00+00:00", sha256="0" * 64)
    mixed = submit("--lr", "0.1", status=2)
    assert "was started with another command, that of job 4000000, whose script was passed to sbatch" in mixed.err
    assert "type --continue to go on from there" in mixed.err
    run.submissions.write_text(run.submissions.read_text().splitlines()[0] + "\n")
    record_direct_submission(run, "4000000", time="2026-01-05T10:00:00+00:00", sha256=known)
    assert "run train continues from the checkpoint of step 5" in submit("--lr", "0.1").err


def test_a_rendered_script_that_was_passed_to_sbatch_is_known_by_its_text(submit, capfd):
    assert cli.run_command_line(["render", "--ntasks-per-node=1", "--hold", "train.py", "--lr", "0.1"]) == 0
    digest = hashlib.sha256(capfd.readouterr().out.encode()).hexdigest()
    run = RunDir(Path.cwd() / "jobs" / "train")
    run.create()
    record_direct_submission(run, "4000000", time="2026-01-05T10:00:00+00:00", sha256=digest)
    pretend("train", step=5)
    assert "run train continues from the checkpoint of step 5" in submit("--lr", "0.1").err


def test_a_sweep_of_the_same_script_says_what_has_its_name_and_an_error_comes_alone(submit, slurm, capfd):
    submit()
    cli.run_command_line(["sweep", "--ntasks-per-node=1", "--hold", "--set", "lr=1", "train.py", "{lr}"])
    printed = capfd.readouterr()
    slurm("scancel", printed.out.strip())
    assert "run train is a single job already; this sweep is run train-2\n" in printed.err
    assert "--nodes 99" in submit("--lr", "9", status=3, options=["--nodes=99"]).err.splitlines()[0]
    assert cli.run_command_line(["render", "--ntasks-per-node=1", "train.py", "--lr", "9"]) == 0
    printed = capfd.readouterr()
    assert "--job-name=train-3" in printed.out and printed.err.endswith("; this is run train-3\n")


def slurm_partition(slurm):
    return next(line.removesuffix("*") for line in slurm("sinfo", "-h", "-o", "%P").split() if line.endswith("*"))


def test_a_run_with_a_checkpoint_is_a_question(submit, slurm, wait_for_job):
    submit("--lr", "0.1")
    job_id = pretend("train", step=1200)
    beside = submit("--lr", "0.3")
    assert "this is run train-2" in beside.err, "a job of train is in the queue: nothing can be continued now"
    gone(slurm, wait_for_job, beside.out.strip())
    shutil.rmtree("jobs/train-2")
    gone(slurm, wait_for_job, job_id)
    asked = submit("--lr", "0.2", status=2)
    assert asked.err == (
        "Error: run train has the checkpoint of step 1200, and was started with another command: '--lr 0.1' became "
        "'--lr 0.2'; type --continue to go on from there with the new one, or --name train-2 to begin another run\n"
    )
    assert not Path("jobs/train-2").exists()
    said = submit("--lr", "0.2", options=["--hold", "--continue"]).err
    assert "run train continues from the checkpoint of step 1200; --reset starts it over\n" in said
    assert not Path("jobs/train-2").exists()


def test_a_command_that_is_no_file_is_no_other_program_of_the_run(submit, slurm, wait_for_job, capfd):
    submit("--lr", "0.1")
    gone(slurm, wait_for_job, pretend("train", step=1200))
    Path("train.py").rename("renamed.py")
    assert "there is no file 'train.py'" in submit("--lr", "0.2", status=2).err
    assert cli.run_command_line(["submit", "train"]) == 2
    spec = RunDir.named("jobs", "train").spec
    assert capfd.readouterr().err == (
        f"Error: COMMAND: 'train' is a run, and no script; to resume it, type: slurmddp submit {spec}\n"
    )


def test_a_finished_program_without_a_checkpoint_runs_again_from_its_beginning(submit, slurm, wait_for_job):
    submit("--lr", "0.1")
    gone(slurm, wait_for_job, pretend("train", status=0))
    said = submit("--lr", "0.1").err
    assert "run train is finished: COMMAND begins anew, unless it loads a checkpoint of its own\n" in said
    gone(slurm, wait_for_job, pretend("train", step=1200, status=0))
    assert "this is run train-2" in submit("--lr", "0.2").err, "a finished run is no question"


def test_a_run_that_never_started_is_replaced(submit, slurm, wait_for_job):
    job_id = submit("--lr", "0.1").out.strip()
    beside = submit("--lr", "0.2")
    assert f"and job {job_id} in the queue; this is run train-2" in beside.err
    gone(slurm, wait_for_job, job_id)
    gone(slurm, wait_for_job, beside.out.strip())
    assert "this is run" not in submit("--lr", "0.3").err
    assert [path.name for path in Path("jobs").iterdir() if path.is_dir()].count("train") == 1


def test_a_run_that_failed_at_once_is_replaced_and_one_that_trained_is_not(submit, slurm, wait_for_job):
    def end(*kinds, took_s=5.0, status=77):
        head = {"job": job_id, "attempt": "0.0", "rank": None, "host": "n1"}
        kinds = ("attempt_start", *kinds, "attempt_end")
        lines = [{"event": kind, "time": index * took_s / (len(kinds) - 1), **head} for index, kind in enumerate(kinds)]
        RunDir(Path.cwd() / "jobs" / "train").events.write_text(
            "".join(json.dumps(line | {"status": status}) + "\n" for line in lines)
        )

    submit("--lr", "0.x")
    gone(slurm, wait_for_job, job_id := pretend("train"))
    for trained in ({"took_s": 600.0}, {"status": 76}):
        end(**trained)
        assert "this is run train-2" in submit("--lr", "0.1", options=("--dry-run",)).err
    end("loop")
    assert "this is run train-2" in submit("--lr", "0.1", options=("--dry-run",)).err
    end()
    assert "this is run" not in submit("--lr", "0.1").err
    assert [path.name for path in Path("jobs").iterdir() if path.is_dir()] == ["train"]


def test_a_name_that_was_given_stays(submit, slurm, wait_for_job):
    submit("--lr", "0.1", options=["--hold", "--name", "mine"])
    gone(slurm, wait_for_job, pretend("mine"))
    said = submit("--lr", "0.2", status=2, options=["--hold", "--name", "mine"]).err
    assert said == (
        "Error: run mine was started with another command: '--lr 0.1' became '--lr 0.2'; choose another --name, or "
        "type --continue to go on with the new one\n"
    )


def test_a_job_that_can_never_start_is_named_with_what_removes_it(submit, slurm, wait_for_job):
    job_id = submit(options=["--force", "--partition=short", "--time=2:00:00"]).out.strip()
    until(lambda: wait_for_job(job_id, "PENDING")["Reason"] == "PartitionTimeLimit", pause_s=ASK_SLURM_S)
    said = submit("--lr", "0.1", status=2, options=["--hold", "--partition=short", "--time=10"]).err
    why = "its time limit is above the partition's"
    assert (
        said
        == f"Error: run train belongs to job {job_id}, which can never start ({why}); type: slurmddp cancel {job_id}\n"
    )
    assert wait_for_job(job_id, "PENDING")["JobState"] == "PENDING"
    gone(slurm, wait_for_job, job_id)
    submit("--lr", "0.1", options=["--hold", "--partition=short", "--time=10"])
    assert [path.name for path in Path("jobs").iterdir() if path.is_dir()] == ["train"]


def test_the_question_of_another_run_does_not_hide_what_the_cluster_rules_out(submit, slurm, wait_for_job):
    job_id = submit("--lr", "0.1").out.strip()
    pretend("train", step=20)
    gone(slurm, wait_for_job, job_id)
    said = submit("--lr", "0.2", status=2, options=("--hold", "-p", "nosuch")).err
    assert (
        "\nrun train has the checkpoint of step 20" in said and "Error: --partition: 'nosuch' does not exist; " in said
    )
    assert "Error: --nodes 9: partition " in submit("--lr", "0.2", status=2, options=("-N", "9")).err
    assert not Path("jobs/train-2").exists()
