"""Names every file of a run, and makes its folder. Starts nothing; standard library only.

A run is one folder. The batch script (templates/base.sbatch.j2) names the same files in shell; a test compares.
"""

from __future__ import annotations
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slurmddp.errors import UsageError
from slurmddp.runs.files import write_whole
from slurmddp.trust import explain_distrust, explain_foreign

MANIFEST = "manifest.json"
"""The file of a checkpoint that is written last: a checkpoint with it is whole."""
SURVIVED = "survived.json"
"""The same, of what a rank that survived has saved."""
EVENTS, SUBMISSIONS = "events.jsonl", "submissions.jsonl"
IDENTITY = "identity"
"""The file in the folder of checkpoints that says which run they are of."""
_RANK_MODEL = re.compile(r"rank-([0-9]+)\.pt\Z")


class _File:
    """A file or folder that every run's folder has by the same name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: _Folder, owner: type | None = None) -> Path:
        return run.path / self._name


class _Folder(NamedTuple):
    path: Path
    training: str = "checkpoints"
    """The name of its folder of checkpoints; a script of the user's own may have several trainings, each with one."""


class RunDir(_Folder):
    """The folder of one run. A job id here is what Slurm shows: `17`, or `17_3` for a task of an array."""

    __slots__ = ()

    job_script = _File("job.sbatch")
    """The script last submitted, byte for byte."""
    spec = _File("spec.toml")
    """Every value of the job, and its source; `slurmddp submit jobs/NAME/spec.toml` repeats the job."""
    submissions = _File(SUBMISSIONS)
    """A line of JSON for each submission, with the commit and the digest of the code."""
    logs = _File("logs")
    """All output, in files named by job, attempt and rank."""
    findings = _File("findings.json")
    """The findings of the last `slurmddp doctor --in-job`, as JSON."""
    events = _File(EVENTS)
    """The run's events, one line of JSON each; `slurmddp.runs.events` and `training_events` define the fields."""
    report = _File("report.html")
    """The run as a page, as `slurmddp report` last wrote it."""
    training_marks = _File("trainings")
    """A file for each training of a user's own script, which says if it is done; `first` has `checkpoints`."""
    owner = _File("owner")
    """Which attempt may write here: one line, `<cluster> <job> <attempt>`."""
    claim = _File(".submitting")
    """Held while a process submits a job for the run: its host and process id."""
    model = _File("model.pt")
    """The trained model: a plain state_dict."""
    tensorboard = _File("tensorboard")
    """What TensorBoard shows of the run."""
    tracker_id = _File("tracker-id")
    """The id of the run in wandb: 32 hexadecimal digits."""
    mlflow_run_id = _File("mlflow-run-id")
    """The id of the run in MLflow."""
    codes = _File("code")
    """The copies of the code that jobs were submitted with."""

    @classmethod
    def named(cls, runs_dir: str, name: str) -> RunDir:
        """Return the folder of the run `name`, as a script with these values names it from this working directory.

        Raises UsageError for a path that Slurm could not write logs to.
        """
        path = Path.cwd() / runs_dir / name
        if not name.isprintable():
            raise UsageError(
                f"{name!a} is not the name of a run: it has a character that cannot be printed; `slurmddp status` "
                "lists the runs"
            )
        if "\\" in str(path) or not str(path).isprintable():
            raise UsageError(
                f"the run's folder {str(path)!a} has a backslash or an unprintable character in its path, and Slurm "
                "writes no log to such a path; choose another folder: --runs-dir"
            )
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        """A folder for each durable step, `step-000000100`."""
        return self.path / self.training

    def training_note(self, job_id: str, attempt: str) -> Path:
        """Which training the attempt is of, if not of that in `checkpoints`."""
        return self.attempt(job_id, attempt) / "training"

    @property
    def sweep(self) -> RunDir | None:
        """The sweep that this run is a setting of; only the folder of a setting has a `=` in its name."""
        return type(self)(self.path.parent) if "=" in self.path.name else None

    @property
    def job_name(self) -> str:
        """The name of its jobs in Slurm."""
        return (self.sweep or self).path.name

    def submitted_script(self, job_id: str) -> Path:
        """The script that the job was submitted with."""
        return self.path / f"{job_id}.sbatch"

    def batch_log(self, job_id: str) -> Path:
        """The output of the batch script and of srun."""
        return self.logs / f"{job_id}.out"

    def batch_errors(self, job_id: str) -> Path:
        """The file of `#SBATCH --error` of a user's own script, if it has one."""
        return self.logs / f"{job_id}.err"

    def batch_record(self, job_id: str) -> Path:
        """How a set-up line failed: one line, its status and the reason."""
        return self.logs / f"{job_id}.end"

    def attempt(self, job_id: str, attempt: str) -> Path:
        """The folder of one start of the ranks; its name is `<SLURM_RESTART_COUNT>.<n>`."""
        return self.logs / job_id / attempt

    def attempts(self, job_id: str) -> list[str]:
        """Return the attempts of that job that have a folder, oldest first."""
        found = (path.name for path in (self.logs / job_id).glob("*.*"))
        names = [name for name in found if re.fullmatch(r"[0-9]+\.[0-9]+", name)]
        return sorted(names, key=lambda name: [int(part) for part in name.split(".")])

    @property
    def has_started(self) -> bool:
        """Whether ranks of any job of the run have started; of a sweep, of any setting."""
        return any(True for pattern in ("logs/*/*.*/", "*=*/logs/*/*.*/") for _ in self.path.glob(pattern))

    def rank_log(self, job_id: str, attempt: str, rank: int) -> Path:
        """The output of that rank, both streams."""
        return self.attempt(job_id, attempt) / f"{rank}.out"

    def rank_record(self, job_id: str, attempt: str, rank: int) -> Path:
        """How that rank ended: one line with status, rank, host and reason."""
        return self.attempt(job_id, attempt) / f"{rank}.end"

    def hang(self, job_id: str, attempt: str) -> Path:
        """It says to the ranks that the next signal ends a training that hangs."""
        return self.attempt(job_id, attempt) / "hang"

    def before_ranks_record(self, job_id: str, attempt: str) -> Path:
        """How a line of --before-ranks failed on a node: one line, its status and the reason."""
        return self.attempt(job_id, attempt) / "before-ranks.end"

    def rank_begin(self, job_id: str, attempt: str, rank: int) -> Path:
        """Written by rank 0 after the rendezvous of all ranks."""
        return self.attempt(job_id, attempt) / f"{rank}.begin"

    def rank_error(self, job_id: str, attempt: str, rank: int) -> Path:
        """The exception that ended that rank, in the form of torch's TORCHELASTIC_ERROR_FILE."""
        return self.attempt(job_id, attempt) / f"{rank}.error.json"

    def flight_prefix(self, job_id: str, attempt: str) -> str:
        """What that rank's flight recorder had recorded; torch appends the rank to the name."""
        return f"{self.attempt(job_id, attempt)}/flight."

    def rendezvous_file(self, job_id: str, attempt: str) -> Path:
        """The file through which the ranks form their group under `--rendezvous file`; removed after a good end."""
        return self.attempt(job_id, attempt) / "meeting"

    def node_mark(self, job_id: str, attempt: str, node: int) -> Path:
        """Written by a node to check that the other nodes see it; removed after the check."""
        return self.attempt(job_id, attempt) / f"node-{node}.mark"

    def program_save(self, job_id: str, attempt: str) -> Path:
        """Touched when the program has called `torch.save`: by it the supervisor knows of checkpoints elsewhere."""
        return self.attempt(job_id, attempt) / "program-save"

    def stacks(self, job_id: str, attempt: str) -> Path:
        """Where each rank stood when the training hung last, as `slurmddp stacks` sees it; the supervisor writes it."""
        return self.attempt(job_id, attempt) / "stacks.json"

    def requeues(self, job_id: str) -> Path:
        """The requeues of that job by itself: a line each, if it had progressed, and if it was at its time limit."""
        return self.logs / job_id / "requeues"

    def before_reset(self, number: int) -> Path:
        """What the run had before it was started over by `--reset`; numbered from 1."""
        return self.path / f"before-reset-{number}"

    @property
    def next_reset(self) -> int:
        """The number of the next start over."""
        found = [re.fullmatch(r"before-reset-([0-9]+)", entry.name) for entry in self.path.glob("before-reset-*")]
        return 1 + max((int(match[1]) for match in found if match), default=0)

    def rank_model(self, rank: int) -> Path:
        """The trained model as one rank holds it, where every rank was asked to save its own."""
        return self.path / f"rank-{rank}.pt"

    @property
    def rank_models(self) -> list[Path]:
        """The ranks' models that are there, by rank."""
        found = {int(match[1]): path for path in self.path.glob("rank-*.pt") if (match := _RANK_MODEL.match(path.name))}
        return [found[rank] for rank in sorted(found)]

    def code(self, digest: str) -> Path:
        """A copy of the code (`--snapshot`), by the digest of what is in it."""
        return self.codes / digest

    def create(self) -> Path | None:
        """Make the folder, private and ignored by git, unless it is there.

        Returns the outermost folder that was made, for `remove_unused`; None when the folder was there. Raises
        UsageError when a file has the folder's name, and when another user can change or replace the folder.
        """
        missing = [folder for folder in (self.path, *self.path.parents) if not os.path.lexists(folder)]
        try:
            if why := explain_distrust(self.path):
                raise UsageError(f"a run in {self.path.parent} would not be yours alone: {why}; or choose --runs-dir")
            if self.path.is_dir():
                missing.clear()
                if why := explain_foreign(self.path.resolve()):
                    raise UsageError(f"the run's folder is not yours alone: {why}; or choose another --name")
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700)
            self.logs.mkdir(exist_ok=True)
            if not (self.path / ".gitignore").exists():  # also after the process was killed that made the folder
                write_whole(self.path / ".gitignore", b"*\n")
        except OSError as error:
            if isinstance(error, FileExistsError) and self.path.is_dir():  # another submission was quicker
                return self.create()
            if missing:
                self.remove_unused(missing[-1])
            present = (path for path in (self.path, *self.path.parents) if os.path.lexists(path))
            if wrong := next((path for path in present if not path.is_dir()), None):
                option = "--name" if wrong == self.path else "--runs-dir"
                what = "a link that leads to no folder" if wrong.is_symlink() else "a file, not a folder"
                raise UsageError(f"{wrong} is {what}; choose another {option}") from error
            said = f"the run's folder {self.path} cannot be made: {error.strerror}"
            raise UsageError(f"{said}; choose another folder by --runs-dir") from error
        return missing[-1] if missing else None

    def explain_strange(self) -> str:
        """Return why the run's folder is not this user's alone; empty if it is. Raises OSError when it is missing."""
        return explain_distrust(self.path) or explain_foreign(self.path.resolve())

    def remove_unused(self, outermost: Path) -> None:
        """Remove the folders that `create` made, up to `outermost`, as far as they are still empty."""
        folders = (self.logs, self.path, *self.path.parents)
        with suppress(OSError):  # one is not empty
            (self.path / ".gitignore").unlink(missing_ok=True)
            for folder in folders[: folders.index(outermost) + 1]:
                with suppress(FileNotFoundError):
                    folder.rmdir()
