"""How a run is resumed: the command to type, and what its next job finds. Reads the run's folder."""

import shlex

from slurmddp.runs.checkpoints import newest_checkpoint, newest_in_folder, newest_program_checkpoint
from slurmddp.runs.history import read_newest
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import settings_of, submissions


def is_resumable(run: RunDir) -> bool:
    """Return whether slurmddp has submitted the run as one job, so that its folder says how it is submitted again."""
    return run.spec.is_file() and not any(map(settings_of, submissions(run)))


def resume_command(run: RunDir) -> str:
    """Return the command that submits the run's next job, from any folder."""
    return shlex.join(["slurmddp", "submit", str(run.spec)])


def find_state(run: RunDir) -> str:
    """Return the checkpoint that the next job finds, as in `the checkpoint of step 20`; empty if none is known.

    A program's own one is looked for by `--checkpoints`, else in the folder of SLURMDDP_CHECKPOINT_DIR.
    """
    if checkpoint := newest_checkpoint(run):
        return f"the checkpoint of step {int(checkpoint.name.partition('-')[2])}"
    started = read_newest(run).last("attempt_start")
    pattern = started.text("checkpoints") if started else ""
    own = newest_program_checkpoint(pattern) if pattern else newest_in_folder(run)
    return f"the checkpoint {own.path}" if own else ""


def describe_resume(run: RunDir) -> str:
    """Return what to type so that the run goes on, and where it goes on then."""
    state = find_state(run)
    then = f"continues from {state}" if state else "starts COMMAND again, which must find its own checkpoint"
    return f"{resume_command(run)} ({then})"
