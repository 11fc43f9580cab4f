"""What to type so that a run goes on, and where it goes on then."""

from pathlib import Path

from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runs.resume import describe_resume, is_resumable


def make(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "my jobs" / "train")
    run.create()
    run.spec.touch()
    return run


def test_the_command_works_from_any_folder_and_the_checkpoint_is_named(tmp_path):
    run = make(tmp_path)
    command = f"slurmddp submit '{run.spec}'"
    assert describe_resume(run) == f"{command} (starts COMMAND again, which must find its own checkpoint)"
    folder = run.checkpoints / "step-000000120"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    assert describe_resume(run) == f"{command} (continues from the checkpoint of step 120)"


def test_a_checkpoint_of_the_programs_own_is_named(tmp_path):
    run = make(tmp_path)
    (tmp_path / "last.pt").touch()
    head = {"time": 1.0, "event": "attempt_start", "job": "7", "attempt": "0.0", "rank": None, "host": "n1"}
    append_record(run.events, {**head, "checkpoints": f"{tmp_path}/*.pt"})
    assert describe_resume(run).endswith(f"(continues from the checkpoint {tmp_path}/last.pt)")


def test_a_checkpoint_in_the_folder_that_the_program_was_given_is_named(tmp_path):
    run = make(tmp_path)
    run.checkpoints.mkdir()
    (run.checkpoints / "step-000000120").mkdir()  # without a manifest, so no checkpoint
    assert "starts COMMAND again" in describe_resume(run)
    (run.checkpoints / "last.pt").touch()
    assert describe_resume(run).endswith(f"(continues from the checkpoint {run.checkpoints}/last.pt)")


def test_a_sweep_and_a_script_that_sbatch_got_are_not_resumed_by_one_command(tmp_path):
    run = make(tmp_path)
    append_record(run.submissions, {"job": "7"})
    assert is_resumable(run)
    append_record(run.submissions, {"job": "8", "settings": [{"lr": "1"}]})
    assert not is_resumable(run)
    assert not is_resumable(RunDir(tmp_path / "other"))
