"""The life of a rank: find out who it is, meet the others, run, and leave a record of how it ended."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from slurmddp import exit_codes, variables
from slurmddp.config.command import ACCELERATE_LAUNCH, LOCAL_RANK_LAUNCH, Command, parse_worker_words
from slurmddp.errors import FencedError, RankError, SlurmddpError
from slurmddp.runs.training_events import Start
from slurmddp.runtime.checkpoint.program_saves import note_saves
from slurmddp.runtime.exiting.classify import DONE, ENDS_BY_NOTICE, Verdict, exit_status, is_of_launcher, judge
from slurmddp.runtime.exiting.record import write_end, write_error, write_event
from slurmddp.runtime.launch.addresses import choose_interface, resolve_head
from slurmddp.runtime.launch.process import print_line, redirect_output
from slurmddp.runtime.launch.rank import Rank, export, export_ids, read_attached_rank, read_rank
from slurmddp.runtime.patches import after_import
from slurmddp.runtime.rank_process import RankProcess
from slurmddp.runtime.stopping.policy import Phase
from slurmddp.runtime.stopping.stopping import NOTICE_LIMIT_S, SETTLE_LIMIT_S, Stopping
from slurmddp.watchdog import look
from slurmddp.worker import run_executable, run_script

if TYPE_CHECKING:
    from slurmddp.runtime.health.preflight import Preflight

FAILED_LIMIT_S = 15.0
"""For the threads and exit handlers of a program that failed: its peers wait in a collective."""
STOPPED_LIMIT_S = 2.0
"""For those of a program that was told to stop, or that another attempt will repeat: it waits for this end."""
CONFIRM_LIMIT_S = 90.0
"""For agreeing on a good end; longer than rank 0 stays up for the others."""


def main(words: list[str], process: RankProcess) -> None:
    """Run COMMAND, or the bundled worker, as one rank; the process then exits with the status of its end."""
    try:
        rank = read_attached_rank(os.environ) if variables.ATTACHED in os.environ else read_rank(os.environ)
    except RankError as error:
        _show(error)
        return
    os.environ.pop(variables.ATTACHED, None)
    stopping = process.begin(rank)
    numbers = {name: getattr(rank, name) for name in ("rank", "local_rank", "world_size", "local_world_size")}
    look.register(job=rank.job, attempt=rank.attempt, host=rank.host, **numbers)  # for `slurmddp stacks`
    try:
        if not rank.attached:
            logs = os.environ.get(variables.RANK_LOGS)  # `all`, or `1` for all but rank 0's
            if rank.run_dir and (logs == "all" or (logs == "1" and not rank.is_main)):
                redirect_output(rank.run_dir.rank_log(rank.job, rank.attempt, rank.rank))
            head = resolve_head(rank.master_addr, os.environ, node_rank=rank.node_rank, host=rank.host)
            stopping.rank = rank = dataclasses.replace(rank, master_addr=head)
            choose_interface(rank, os.environ)
            export(rank, os.environ)
        export_ids(rank, os.environ)
        _run(process, words)
    except BaseException as error:
        if not process.exit.is_armed_here():
            raise
        _fail(process, error)


def _watch_groups(rank: Rank) -> None:
    from slurmddp.runtime.exiting import flight_recorder  # noqa: PLC0415 - the program has just imported torch
    from slurmddp.runtime.rendezvous.process_group import skip_group_destructors  # noqa: PLC0415 - the same

    flight_recorder.enable(rank, os.environ)
    skip_group_destructors()


def _run(process: RankProcess, words: list[str]) -> None:
    stopping = process.stopping
    rank = stopping.rank
    confirm_end, ranks = _begin_attached(stopping) if rank.attached else _meet(process, words)
    write_event(rank, Start(rank.world_size, rank.local_world_size, rank.nodes, rank.launcher, ranks))
    if rank.run_dir and rank.is_main and not rank.attached:  # shows that all ranks have met
        rank.run_dir.rank_begin(rank.job, rank.attempt, rank.rank).touch(mode=0o600)
    run_script.redirect_imports(os.environ)
    command = Command(tuple(words), "script") if rank.attached else parse_worker_words(tuple(words))
    if command.kind == "worker":
        _run_bundled(words)
        _finish(process, lambda: True)
    else:
        _run_command(words, command, stopping)
        _finish(process, confirm_end)


def _begin_attached(stopping: Stopping) -> tuple[Callable[[], bool], dict[str, str]]:
    """Begin as a rank of a person's own launch line, whose ranks do not meet before the program; return as `_meet`.

    A record that is there is of an earlier Python of the same task, as of one that printed a port.
    """
    rank = stopping.rank
    stopping.enter(Phase.SCRIPT)
    after_import("torch", lambda _: _watch_groups(rank))
    if rank.run_dir:
        with contextlib.suppress(OSError):
            rank.run_dir.rank_record(rank.job, rank.attempt, rank.rank).unlink(missing_ok=True)
            rank.run_dir.rank_begin(rank.job, rank.attempt, rank.rank).touch(mode=0o600)
    return lambda: True, {}


def _meet(process: RankProcess, words: list[str]) -> tuple[Callable[[], bool], dict[str, str]]:
    """Meet the other ranks, and look at nodes and ranks; return how to agree on the end, and which ranks are where."""
    stopping = process.stopping
    rank = stopping.rank
    if rank.world_size == 1:
        stopping.enter(Phase.SCRIPT)
        preflight = _preflight(rank, words)
        if preflight and (error := preflight.judge([preflight.facts])):
            raise error
        return lambda: True, {rank.host: str(rank.rank)}
    stopping.enter(Phase.RENDEZVOUS)
    from slurmddp.runtime.rendezvous.rendezvous import arrival_limit, meet  # noqa: PLC0415 - torch comes late

    _watch_groups(rank)
    rendezvous = meet(rank, arrival_limit(process.began_at), _preflight(rank, words))
    stopping.enter(Phase.SCRIPT, confirm=rendezvous.confirm_stop)
    return rendezvous.confirm_end, rendezvous.ranks_by_host


def _preflight(rank: Rank, words: list[str]) -> "Preflight | None":
    if os.environ.get(variables.SKIP_PREFLIGHT) == "1":
        return None
    from slurmddp.runtime.health.preflight import Preflight  # noqa: PLC0415 - what is left out costs nothing

    return Preflight(rank, [*map(run_script.map_to_snapshot, words[:1]), *words[1:]], os.environ)


def _run_command(words: list[str], command: Command, stopping: Stopping) -> None:
    try:
        if command.kind == "executable":
            run_executable.run(words[1:], stopping)
            return
        after_import("transformers.trainer", lambda module: _adopt_trainer(module, stopping))
        note_saves(stopping.rank)
        if tuple(words[:2]) == ACCELERATE_LAUNCH:
            words = run_script.prepare_accelerate(words[2:], stopping.rank)
        elif tuple(words[:2]) == LOCAL_RANK_LAUNCH:
            behind = command.place + 1  # where torch.distributed.launch puts it, before the program's own arguments
            words = [*words[2:behind], f"--local-rank={stopping.rank.local_rank}", *words[behind:]]
        run_script.run(words)
    except SystemExit as error:
        if not isinstance(error.code, (int, type(None))):
            print(error.code, file=sys.stderr)  # noqa: T201 - as python does
        if exit_status(error):
            raise


def _adopt_trainer(module: ModuleType, stopping: Stopping) -> None:
    from slurmddp.runtime.transformers import adopt  # noqa: PLC0415 - torch comes late

    if stopping.rank.run_dir:
        adopt(module, stopping, stopping.rank.run_dir.checkpoints)


def _run_bundled(words: list[str]) -> None:
    try:
        from slurmddp.config import worker_options  # noqa: PLC0415 - only when there is no COMMAND
        from slurmddp.worker.bundled import train  # noqa: PLC0415 - only when there is no COMMAND
    except ModuleNotFoundError as error:
        if (error.name or "slurmddp").startswith("slurmddp"):
            raise
        raise RankError(
            f"the bundled worker needs {error.name}, which {sys.executable} has not; install it there, as in: "
            f"{sys.executable} -m pip install {error.name}"
        ) from error

    train.train(worker_options.parse(words))


def _finish(process: RankProcess, confirm_end: Callable[[], bool]) -> None:
    """Leave well, after the program's own threads and exit handlers; rank 0 writes the run's end if all said so."""
    rank = process.stopping.rank

    def finish() -> int:
        process.exit.set_exit_deadline(CONFIRM_LIMIT_S, exit_codes.DONE)
        confirmed = confirm_end()
        process.stopping.enter(Phase.EXIT)
        if not (confirmed and rank.is_main):
            return exit_codes.DONE
        if rank.init_file:
            rank.init_file.unlink(missing_ok=True)
        status = _record(rank, _judge_good_end(process.stopping))
        return exit_codes.DONE if rank.attached else status

    process.exit.last_handler = finish
    process.exit.set_exit_deadline(None, exit_codes.DONE)


def _judge_good_end(stopping: Stopping) -> Verdict:
    """Judge an end with status 0: a program that has itself handled a notice may have ended because of it.

    To start a finished program again costs a start, not to start an unfinished one costs the training.
    """
    heard = stopping.signals.has_come() and stopping.signals.handled_by_program
    if not heard or os.environ.get(variables.EXIT_0_AFTER_SIGNAL) == "done":
        return DONE
    stopping.record_request()
    return Verdict(
        exit_codes.STOPPED,
        f"stop signal received ({stopping.reason}); the program handled it by itself and ended with status 0, which "
        "does not say that it is complete (--after-signal-exit-0)",
    )


def _fail(process: RankProcess, error: BaseException) -> None:
    """Record the failure at once, then leave by way of the program's exit handlers.

    Under srun a fenced rank leaves with 0, its record says 78: on another status the srun of a node that was cut off
    would end the step of this number, which by now is that of the attempt that owns the run.
    """
    stopping = process.stopping
    rank = stopping.rank
    if not isinstance(error, SystemExit):
        stopping.rescue()
    verdict = _judge(stopping, error)
    if not isinstance(error, SystemExit):
        error = error.with_traceback(run_script.trace_of_program(error))
        write_error(rank, error)
        _show(error)
    if rank.is_main and verdict.status == exit_codes.RETRYABLE:
        stopping.await_exit(SETTLE_LIMIT_S)
    stopping.enter(Phase.EXIT)
    status = verdict.status
    if status != exit_codes.STOPPED or rank.is_main:  # rank 0 alone records that all were asked to stop
        status = _record(rank, verdict)
    if status == exit_codes.FENCED and rank.under_srun:
        status = exit_codes.DONE
    end = exit_status(error) if rank.attached else status
    process.exit.last_handler = lambda: end
    process.exit.set_exit_deadline(FAILED_LIMIT_S if status == exit_codes.FAILED else STOPPED_LIMIT_S, status)
    if status in (exit_codes.FAILED, exit_codes.RETRYABLE) and "torch.distributed" in sys.modules:
        from slurmddp.runtime.exiting import flight_recorder  # noqa: PLC0415 - torch is here already

        flight_recorder.dump(rank)


def _judge(stopping: Stopping, error: BaseException) -> Verdict:
    """Judge the error by what only this rank knows: that it was told to stop, or that it owns nothing any more."""
    verdict = stopping.judge_failure(error, judge(error))
    if verdict.status == exit_codes.RETRYABLE and stopping.rank.world_size > 1 and is_of_launcher(error):
        return Verdict(exit_codes.FAILED, f"the program starts a launcher in each rank: {verdict.reason}")
    status, signals = exit_status(error), stopping.signals
    failed = verdict.status == exit_codes.FAILED and not isinstance(error, SlurmddpError)
    if failed and status in ENDS_BY_NOTICE and signals.signal_seen.wait(NOTICE_LIMIT_S):
        return Verdict(exit_codes.STOPPED, f"stop signal received, and ended by itself with status {status}")
    if failed and signals.has_come():
        return Verdict(exit_codes.RETRYABLE, f"stop signal received, and failed then: {verdict.reason}")
    if verdict.status == exit_codes.RETRYABLE:
        try:
            stopping.rank.check_owner()
        except FencedError as fenced:
            return judge(fenced)
        except OSError:
            pass
    return verdict


def _record(rank: Rank, verdict: Verdict) -> int:
    """Write how the rank ended and return its status; a good end that is not recorded is none."""
    try:
        write_end(rank, verdict)
    except OSError as error:
        path = rank.run_dir and rank.run_dir.rank_record(rank.job, rank.attempt, rank.rank)
        print_line(f"Error: the end could not be recorded in {path}: {error.strerror}", sys.stderr)
        return verdict.status or exit_codes.RETRYABLE
    return verdict.status


def _show(error: BaseException) -> None:
    if isinstance(error, SlurmddpError):
        print_line(f"Error: {error}", sys.stderr)
    else:
        with contextlib.suppress(OSError):  # torch's own hook raises it on a full disk
            sys.excepthook(type(error), error, error.__traceback__)
