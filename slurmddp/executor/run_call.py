"""Runs in each rank of an executor's job: calls the pickled callable, and writes the result for submitit.

Started by `python -m slurmddp.worker -m slurmddp.executor.run_call`, with SUBMITIT_FOLDER set by the batch
script. At SIGTERM, SIGUSR1 and SIGUSR2 the worker calls `checkpoint()` on rank 0.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from submitit import JobEnvironment, helpers
from submitit.core import utils

from slurmddp import exit_codes
from slurmddp.background import wait_until
from slurmddp.errors import RankError
from slurmddp.executor.job import CALL_VARIABLE, call_file
from slurmddp.runtime.exiting.classify import Verdict, judge
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.stopping.policy import Phase, Reason
from slurmddp.runtime.stopping.stopping import HEARD_LIMIT_S, Stopping

HANDOVER_LIMIT_S: Final = 10.0
"""Time for the submitting program to hand the call over; after it, the job takes the call itself."""
ARRIVAL_LIMIT_S: Final = 60.0
"""Time for the call to become visible on this node."""
PAUSE: Final = signal.SIGURG
"""Interrupts the main thread between two instructions of the callable; other processes ignore this signal."""
PAUSE_LIMIT_S: Final = 3.0
"""Time for the main thread to be interrupted; it may be inside a collective."""
SAVE_LIMIT_S: Final = 20.0
"""Time to save such a callable."""
POLL_S: Final = 0.1
SAVED: Final = "call"
"""The file in the run's folder of checkpoints whose time says when the call was saved last: by it a requeue counts as
progress."""


def main() -> None:
    """Call what was pickled for this job; what it raises comes out, and is kept for whoever asks for the result."""
    process = this_process()
    if not process.has_begun:
        sys.exit("slurmddp.executor.run_call is started by slurmddp.worker, which the executor's batch script does")
    stopping = process.stopping
    files = Files(stopping.rank)
    files.result(stopping.rank.rank).unlink(missing_ok=True)
    _accept_ready_ranks()
    try:
        _call(stopping, files)
    except BaseException as error:
        verdict = judge(error)
        may_retry = verdict.status == exit_codes.RETRYABLE
        if verdict.status == exit_codes.FENCED or (may_retry and stopping.rank.world_size > 1):
            raise
        files.keep(("error", traceback.format_exc()))
        if may_retry:  # without peers none can be lost
            traceback.print_exc()
            raise RankError(verdict.reason) from error
        raise


def _call(stopping: Stopping, files: "Files") -> None:
    """Write what the callable returns; rank 0 does so last, so that until then a stop signal finds all ranks."""
    call = Call(files.load_call(), files)
    signal.signal(PAUSE, call.pause)
    stopping.enter(Phase.CALL, end_call=call.stop)
    if stopping.rank.is_main:
        result = call.run(lambda: files.wait_for(range(1, stopping.rank.world_size)))
        stopping.enter(Phase.EXIT)
        files.keep(("success", result))
    else:
        files.keep(("success", call.run(lambda: None)))
        files.wait_for([0])
        stopping.enter(Phase.EXIT)


class Files:
    """submitit's files of this job, for one rank."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._paths = JobEnvironment().paths

    def load_call(self) -> utils.DelayedSubmission:
        """Return the call. Raises RuntimeError when its pickle does not appear."""
        path = self._paths.submitted_pickle
        if handover := os.environ.get(CALL_VARIABLE):
            waiting = call_file(Path(handover), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0")))
            if not wait_until(lambda: not waiting.exists(), HANDOVER_LIMIT_S, POLL_S):
                with suppress(FileNotFoundError):  # another rank may have taken it
                    waiting.replace(path)
        if not wait_until(path.exists, ARRIVAL_LIMIT_S, POLL_S):
            raise RuntimeError(f"{path} did not appear within {ARRIVAL_LIMIT_S:.0f} s; submit again")
        return utils.DelayedSubmission.load(path)

    def result(self, rank: int) -> Path:
        """Return the file of that rank's result."""
        return utils.JobPaths(self._paths.folder, self._paths.job_id, rank).result_pickle

    def keep(self, result: tuple[str, Any]) -> None:
        """Write this rank's result. Raises FencedError when another attempt owns the job."""
        self._write(self.result(self._rank.rank), result)

    def write_call(self, call: utils.DelayedSubmission) -> None:
        """Write the call with which the job continues. Raises FencedError when another attempt owns the job."""
        self._write(self._paths.submitted_pickle, call)
        if self._rank.run_dir:
            (self._rank.run_dir.checkpoints / SAVED).touch()

    def wait_for(self, ranks: Iterable[int]) -> None:
        """Wait until these ranks have a result; srun ends this rank when one fails."""
        for rank in ranks:
            wait_until(self.result(rank).exists, pause_s=POLL_S)

    def _write(self, path: Path, content: Any) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            utils.cloudpickle_dump(content, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            self._rank.check_owner()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


class Call:
    """The call. A stop signal interrupts it once; then it has either returned or is saved."""

    def __init__(self, delayed: utils.DelayedSubmission, files: Files) -> None:
        self._delayed, self._files = delayed, files
        self._state: Literal["running", "saving", "over"] = "running"
        self._changing = threading.Lock()
        self._paused, self._saved = threading.Event(), threading.Event()
        self._reason: Reason = "signal"
        self._verdict: Verdict | None = None

    def run(self, wait: Callable[[], None]) -> Any:
        """Return the callable's result after `wait`; a stop signal during `wait` still saves the call."""
        try:
            result = self._delayed.result()
            wait()
        except Exception:
            if this_process().signals.signal_seen.wait(HEARD_LIMIT_S):
                self._saved.wait(SAVE_LIMIT_S)
            raise
        finally:
            if not self._try_enter("over"):
                _wait_for_end()
        return result

    def pause(self, _: int, __: FrameType | None) -> None:
        """Save in the main thread, which then runs no further instruction of the callable."""
        saves = self._try_enter("saving")
        self._paused.set()
        if saves:
            self._save()
        if self._state == "saving":
            _wait_for_end()

    def stop(self, reason: Reason) -> Verdict | None:
        """Save the call, and return how the job ends; None when it continues. Called in another thread.

        A callable without `checkpoint` runs until the time limit. A callable that has returned is not saved.
        """
        if reason == "time limit" and not _is_checkpointable(self._delayed):
            print("stop signal received (time limit); the callable has no checkpoint() and continues", flush=True)  # noqa: T201 - the rank's log
            return None
        self._reason = reason
        signal.pthread_kill(threading.main_thread().ident or 0, PAUSE)
        self._paused.wait(PAUSE_LIMIT_S)
        if self._try_enter("saving"):
            self._save()
        elif self._state == "saving":
            self._saved.wait()
        return self._verdict

    def _try_enter(self, state: Literal["saving", "over"]) -> bool:
        with self._changing:
            if self._state != "running":
                return False
            self._state = state
            return True

    def _save(self) -> None:
        try:
            self._verdict = self._save_call()
        except BaseException as error:  # noqa: BLE001 - what checkpoint() raises ends the job, as in a callable
            self._verdict = judge(error)
            if self._verdict.status == exit_codes.FAILED:
                self._files.keep(("error", traceback.format_exc()))
        self._saved.set()

    def _save_call(self) -> Verdict:
        again = self._delayed._checkpoint_function()  # noqa: SLF001 - it knows both names of the method
        timed_out = self._reason == "time limit"
        left = self._delayed._timeout_countdown - timed_out  # noqa: SLF001 - where submitit keeps it
        if (again is None and _is_checkpointable(self._delayed)) or left < 0:
            why = "timed-out too many times" if again else "checkpoint function returned None"
            raise utils.UncompletedJobError(f"Job not requeued because: {why}.")
        if again:
            again.set_timeout(self._delayed._timeout_min, left)  # noqa: SLF001 - the same
            self._files.write_call(again)
        return Verdict(
            exit_codes.STOPPED,
            f"stop signal received ({self._reason}); {'checkpoint() is kept' if again else 'the call begins anew'}",
        )


def _is_checkpointable(call: utils.DelayedSubmission) -> bool:
    return any(hasattr(call.function, name) for name in ("__submitit_checkpoint__", "checkpoint"))


def _accept_ready_ranks() -> None:
    """Let submitit's helper for torch.distributed accept the variables that are already set."""
    original = helpers.TorchDistributedEnvironment.export

    def export(self: helpers.TorchDistributedEnvironment, *given: Any, **named: Any) -> Any:
        self.master_addr = os.environ["MASTER_ADDR"]
        return original(self, *given[:1], **named | {"overwrite": True})

    helpers.TorchDistributedEnvironment.export = export  # type: ignore[method-assign] # it refuses variables that are set


def _wait_for_end() -> None:
    """Wait forever: another thread ends the process."""
    threading.Event().wait()


if __name__ == "__main__":
    main()
