"""What each rank of an executor's job runs: it calls what was pickled, and keeps the result where submitit looks.

Started by `python -m slurmddp.worker -m slurmddp.executor.run_call`, with SUBMITIT_FOLDER set by the batch
script. The worker passes on TERM, USR1 and USR2; each leads to `checkpoint()` on rank 0.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from submitit import JobEnvironment, helpers
from submitit.core import utils

from slurmddp import exit_codes
from slurmddp.errors import RankError
from slurmddp.executor import call_files as handed_over
from slurmddp.runs.ownership import ownership_of
from slurmddp.runtime.exiting.classify import Verdict, judge
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.stopping.signals import NOTICES
from slurmddp.runtime.stopping.slurm_reason import Reason
from slurmddp.runtime.stopping.stop_policy import Stopping, begun

HANDOVER_LIMIT_S: Final = 10.0
"""For the call to be handed over by the program that has submitted it; later the job takes it by itself."""
ARRIVAL_LIMIT_S: Final = 60.0
"""For the call to be seen on this node."""
PAUSE: Final = signal.SIGURG
"""Brings the main thread to a halt between two of the callable's instructions; does nothing to a process of its own."""
PAUSE_LIMIT_S: Final = 3.0
"""For the main thread, which may be inside a collective, to be brought to a halt."""
HEARD_LIMIT_S: Final = 1.0
"""For a notice to be heard that has also reached what the callable has started, and so made it fail."""
SAVE_LIMIT_S: Final = 20.0
"""For such a callable to be saved all the same."""
LOOK_S: Final = 0.1


def main() -> None:
    """Call what was pickled for this job; what it raises comes out, and is kept for whoever asks for the result."""
    stopping = begun()
    if stopping is None:
        sys.exit("slurmddp.executor.run_call is started by slurmddp.worker, which the executor's batch script does")
    files = Files(stopping.rank)
    files.result(stopping.rank.rank).unlink(missing_ok=True)
    _accept_ready_ranks()
    try:
        _call(stopping, files)
    except BaseException as error:
        verdict = judge(error)
        if verdict.status == exit_codes.FENCED or (
            verdict.status == exit_codes.RETRYABLE and stopping.rank.world_size > 1
        ):
            raise
        files.keep(("error", traceback.format_exc()))
        if verdict.status == exit_codes.RETRYABLE:  # without peers none can be lost
            traceback.print_exc()
            raise RankError(verdict.reason) from error
        raise


def _call(stopping: Stopping, files: "Files") -> None:
    """Keep what the callable returns; rank 0 last of all, so that until then a notice finds every rank."""
    call = Call(files.submitted(), files)
    signal.signal(PAUSE, call.pause)
    stopping.expect_own_end(call.stop)
    if stopping.rank.is_main:
        result = call.run(files.wait_for_peers)
        stopping.expect_nothing()
        files.keep(("success", result))
    else:
        files.keep(("success", call.run(lambda: None)))
        files.wait_for(0)
        stopping.expect_nothing()


class Files:
    """submitit's files of this job, as one rank uses them."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._paths = JobEnvironment().paths
        self._owner = ownership_of(rank.run_dir.owner, os.environ) if rank.run_dir else None

    def submitted(self) -> utils.DelayedSubmission:
        """Return the call. Raises RuntimeError when its pickle does not come."""
        path = self._paths.submitted_pickle
        if handed := os.environ.get(handed_over.VARIABLE):
            _take(handed_over.call_file(Path(handed), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))), path)
        if not _waited(path.exists, ARRIVAL_LIMIT_S):
            raise RuntimeError(f"{path} did not come within {ARRIVAL_LIMIT_S:.0f} s; submit again")
        return utils.DelayedSubmission.load(path)

    def result(self, rank: int) -> Path:
        """The file of that rank's result."""
        return utils.JobPaths(self._paths.folder, self._paths.job_id, rank).result_pickle

    def keep(self, result: tuple[str, Any]) -> None:
        """Write this rank's result. Raises FencedError when another attempt owns the job."""
        self._write(self.result(self._rank.rank), result)

    def keep_call(self, call: utils.DelayedSubmission) -> None:
        """Write the call that the job is to go on with. Raises FencedError when another attempt owns the job."""
        self._write(self._paths.submitted_pickle, call)
        if self._rank.run_dir:
            self._count_progress(self._rank.run_dir.checkpoints)

    def wait_for_peers(self) -> None:
        """Wait until all other ranks have a result; one that fails ends this one, too."""
        for rank in range(1, self._rank.world_size):
            self.wait_for(rank)

    def wait_for(self, rank: int) -> None:
        """Wait until that rank has a result."""
        _waited(self.result(rank).exists)

    def _write(self, path: Path, content: Any) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            utils.cloudpickle_dump(content, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            if self._owner:
                self._owner.check()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _count_progress(self, folder: Path) -> None:
        """Leave what the batch script counts as progress, so that it goes on putting the job back into the queue."""
        folder.mkdir(exist_ok=True)
        count = len(list(folder.iterdir()))
        (folder / f"step-{count:09d}").touch()


class Call:
    """The call, which a notice interrupts: once, and either it returns or it is saved."""

    def __init__(self, delayed: utils.DelayedSubmission, files: Files) -> None:
        self._delayed, self._files = delayed, files
        self._state: Literal["running", "saving", "over"] = "running"
        self._changing = threading.Lock()
        self._paused, self._saved = threading.Event(), threading.Event()
        self._reason: Reason = "signal"
        self._verdict: Verdict | None = None

    def run(self, wait: Callable[[], None]) -> Any:
        """Return the callable's result; `wait` comes after it, and a notice still counts."""
        try:
            result = self._delayed.result()
            wait()
        except Exception:
            if NOTICES.heard.wait(HEARD_LIMIT_S):
                self._saved.wait(SAVE_LIMIT_S)
            raise
        finally:
            if not self._become("over"):
                _hold()
        return result

    def pause(self, number: int, frame: FrameType | None) -> None:
        """Save in the main thread, which runs no instruction of the callable after that."""
        del number, frame
        saves = self._become("saving")
        self._paused.set()
        if saves:
            self._save()
        if self._state == "saving":
            _hold()

    def stop(self, reason: Reason) -> Verdict | None:
        """Save, and say how the job ends; None when it is to go on. Called by a second thread.

        A callable without `checkpoint` has all the time there is, and one that has returned meanwhile is not saved.
        """
        if reason == "time limit" and not _is_checkpointable(self._delayed):
            print("told to stop (time limit); the callable has no checkpoint() and goes on", flush=True)  # noqa: T201 - the rank's log
            return None
        self._reason = reason
        signal.pthread_kill(threading.main_thread().ident or 0, PAUSE)
        self._paused.wait(PAUSE_LIMIT_S)
        if self._become("saving"):
            self._save()
        elif self._state == "saving":
            self._saved.wait()
        return self._verdict

    def _become(self, state: Literal["saving", "over"]) -> bool:
        with self._changing:
            if self._state != "running":
                return False
            self._state = state
            return True

    def _save(self) -> None:
        try:
            self._verdict = self._saved_verdict()
        except BaseException as error:  # noqa: BLE001 - whatever checkpoint() raises is the job's end, as in a callable
            self._verdict = self._failed(judge(error), traceback.format_exc())
        self._saved.set()

    def _saved_verdict(self) -> Verdict:
        again, timed_out = self._checkpoint(), self._reason == "time limit"
        left = self._delayed._timeout_countdown - timed_out  # noqa: SLF001 - where submitit keeps it
        if (again is None and _is_checkpointable(self._delayed)) or left < 0:
            why = "timed-out too many times" if again else "checkpoint function returned None"
            text = f"Job not requeued because: {why}."
            return self._failed(Verdict(exit_codes.FAILED, text), f"{utils.UncompletedJobError.__name__}: {text}\n")
        if again:
            again.set_timeout(self._delayed._timeout_min, left)  # noqa: SLF001 - the same
            self._files.keep_call(again)
        return Verdict(
            exit_codes.STOPPED,
            f"told to stop ({self._reason}); {'checkpoint() is kept' if again else 'the call begins anew'}",
        )

    def _checkpoint(self) -> utils.DelayedSubmission | None:
        return self._delayed._checkpoint_function()  # noqa: SLF001 - it knows both names of the method

    def _failed(self, verdict: Verdict, trace: str) -> Verdict:
        if verdict.status == exit_codes.FAILED:
            self._files.keep(("error", trace))
        return verdict


def _take(waiting: Path, path: Path) -> None:
    """Take a call that was not handed over; another rank may be quicker."""
    if not _waited(lambda: not waiting.exists(), HANDOVER_LIMIT_S):
        with suppress(FileNotFoundError):
            waiting.replace(path)


def _is_checkpointable(call: utils.DelayedSubmission) -> bool:
    return any(hasattr(call.function, name) for name in ("__submitit_checkpoint__", "checkpoint"))


def _accept_ready_ranks() -> None:
    """Let submitit's own helper for torch.distributed agree with the variables that are set already."""
    original = helpers.TorchDistributedEnvironment.export

    def export(
        self: helpers.TorchDistributedEnvironment,
        set_cuda_visible_devices: bool = True,  # noqa: FBT001, FBT002 - its signature
        overwrite: bool = False,  # noqa: FBT001, FBT002 - the same
    ) -> helpers.TorchDistributedEnvironment:
        del overwrite
        self.master_addr = os.environ["MASTER_ADDR"]
        return original(self, set_cuda_visible_devices=set_cuda_visible_devices, overwrite=True)

    helpers.TorchDistributedEnvironment.export = export  # type: ignore[method-assign] # it refuses variables that are set


def _waited(arrived: Callable[[], bool], limit_s: float = float("inf")) -> bool:
    deadline = time.monotonic() + limit_s
    while not arrived():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _hold() -> None:
    """Do nothing more: the process is being ended by another thread."""
    threading.Event().wait()


if __name__ == "__main__":
    main()
