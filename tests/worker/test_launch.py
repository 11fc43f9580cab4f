"""Ranks start together, get signals, and end together, under each launcher."""

import gzip
import os
import signal
from pathlib import Path

import pytest
from polling import until
from processes import signals

PRELOADED = pytest.mark.preloaded
"""For what does not depend on how a rank comes to have torch."""
HEAD = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


@pytest.mark.parametrize("launcher", ["srun", "fork"])
def test_every_rank_runs_with_its_own_numbers_and_log(start, script, launcher):
    path = script(
        "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'SLURM_PROCID', 'SLURM_NTASKS')\n"
        "print(*(os.environ[name] for name in names), sys.argv[1:], sys.stdin.read())\n"
    )
    ended = start(launcher, 3, path, "a b", b"\xff").wait()
    assert set(ended.statuses) == {0}, ended
    for rank in range(3):
        assert ended.log(rank) == f"{rank} {rank} 3 3 {rank} 3 ['a b', '\\udcff'] \n"
    assert [ended.record(rank) for rank in range(3)] == ["0 done\n", None, None]
    (begun,) = ended.events("start")
    assert (begun["world_size"], begun["launcher"]) == (3, launcher)


@PRELOADED
def test_a_group_that_forms_by_a_file_has_no_store_at_its_port_and_leaves_no_file(start, script, tmp_path):
    path = script(
        "import socket, slurmddp, torch, torch.distributed as dist\n"
        "with slurmddp.init() as ddp:\n"
        "    print(socket.socket().connect_ex(('127.0.0.1', int(os.environ['MASTER_PORT']))) != 0)\n"
        "    total = torch.tensor(ddp.rank + 1); dist.all_reduce(total); print(int(total))\n"
    )
    meeting = tmp_path / "a b" / "meeting"
    meeting.parent.mkdir()
    ended = start("fork", 2, path, SLURMDDP_RENDEZVOUS_FILE=f"file://{meeting}").wait()
    assert ended.statuses == [0], ended
    assert "True\n3\n" in ended.log(0)
    assert list(meeting.parent.iterdir()) == [], "gone after a good end"


@PRELOADED
@pytest.mark.parametrize("leaves", [0, 1])
def test_a_rank_that_leaves_by_itself_fails_nobody(start, script, leaves):
    path = script(f"if rank == {leaves}: os._exit(0)\n")
    running = start("srun", 2, path)
    stays = running.processes[1 - leaves]
    running.processes[leaves].wait(300)
    assert running.run.rank_begin("17", "0.0", 0).read_bytes() == b""
    if leaves == 0:
        assert stays.wait(300) == 0
    assert not running.run.rank_record("17", "0.0", 0).exists()


@PRELOADED
@pytest.mark.parametrize("launcher", ["srun", "fork"])
def test_files_that_the_program_left_open_are_whole(start, script, launcher):
    path = script(
        "import csv, gzip\n"
        "sys.modules['lzma'] = None  # not to be had\n"
        "plain = open(f'plain-{rank}', 'w'); plain.write('a\\n')\n"
        "packed = gzip.open(f'packed-{rank}', 'wt'); packed.write('a\\n')\n"
        "def make():\n"
        "    file = open(f'csv-{rank}', 'w', newline='')\n"
        "    return lambda row: csv.writer(file).writerow(row)\n"
        "make.write = make(); make.write(['a'])\n"
    )
    assert set(start(launcher, 2, path).wait().statuses) == {0}
    for rank in range(2):
        assert path.with_name(f"plain-{rank}").read_text() == "a\n"
        assert gzip.decompress(path.with_name(f"packed-{rank}").read_bytes()) == b"a\n"
        assert path.with_name(f"csv-{rank}").read_bytes() == b"a\r\n"


@PRELOADED
def test_a_rank_that_fails_at_the_end_spoils_the_run(start, script):
    ended = start("fork", 2, script("if rank == 1: time.sleep(0.5); sys.exit(3)")).wait()
    assert ended.statuses == [77]
    assert ended.record(1) == "77 rank 1 on n1: exit status 3\n"
    assert "lost rank 1 (n1): no answer within 3 s (SIGTERM)" in ended.record(0), (
        "TERM after a rank's end is no notice to all"
    )


@PRELOADED
def test_a_dead_rank_ends_the_node_with_its_status(start, script):
    """The others get TERM, and KILL after the grace."""
    path = script("if rank == 1: raise ValueError('boom')\ntime.sleep(600)\n")
    ended = start("fork", 3, path).wait()
    assert ended.statuses == [77]
    assert "rank 1 (pid " in ended.stdout and "ended with status 77; stopping the others" in ended.stdout
    assert ended.record(1) == "77 rank 1 on n1: ValueError: boom\n"
    assert "ValueError: boom" in ended.log(1)


@PRELOADED
def test_signals_reach_every_rank(start, script):
    path = script(
        "for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):\n"
        "    signal.signal(number, lambda number, _: print(signal.Signals(number).name, flush=True))\n"
        "print('ready', flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
    )
    go = path.with_name("go")
    running = start("fork", 2, path, str(go), SLURMDDP_EXIT_0_AFTER_SIGNAL="done")
    running.until_said("ready")
    for name in ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGCONT"):
        running.processes[0].send_signal(signal.Signals[name])
        running.until_said(name)
    go.touch()
    assert running.wait().statuses == [0]


@PRELOADED
@pytest.mark.parametrize("notice", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
@pytest.mark.parametrize("launcher", ["srun", "fork"])
def test_a_notice_ends_a_program_that_does_not_handle_it(start, script, launcher, notice):
    """It is asleep in one rank and in a collective in the other; its own checkpoints count, and it comes back."""
    waits = "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('ready', flush=True)\n"
    running = start(launcher, 2, script(waits + "time.sleep(600) if rank else dist.barrier()"))
    running.until_said("ready")
    running.signal(notice)
    ended = running.wait()
    assert set(ended.statuses) == {75}
    assert ended.record(0).startswith("75 rank 0 on n1: stop signal received (")
    assert ended.record(1) is None
    (event,) = ended.events("notice")
    assert event["cause"] == notice.name


@PRELOADED
def test_a_notice_before_the_ranks_have_met_ends_them_for_another_attempt(start, script):
    running = start("srun", 2, script(""))
    running.processes[1].kill()
    until(lambda: signal.SIGTERM in signals(running.processes[0].pid, "SigCgt"))
    running.processes[0].send_signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.statuses == [76, -signal.SIGKILL]
    assert (
        ended.record(0)
        == "76 rank 0 on n1: stop signal received (SIGTERM) before the ranks had met: there was nothing to save\n"
    )


@PRELOADED
@pytest.mark.parametrize("status", [75, 143, 140])
def test_a_program_that_handles_the_notice_itself_comes_back(start, script, status):
    """143 is what SIGTERM means to a shell. Without a notice these are failures: it would come back for ever."""
    text = f"signal.signal(signal.SIGUSR2, lambda *_: sys.exit({status}))\nprint('ready', flush=True)\n"
    running = start("srun", 2, script(text + f"time.sleep(60 if len(sys.argv) > 1 else 0)\nsys.exit({status})"), "long")
    running.until_said("ready")
    running.signal(signal.SIGUSR2)
    ended = running.wait()
    assert ended.statuses == [75, 75]
    assert ended.record(0).startswith(
        f"75 rank 0 on n1: stop signal received, and ended by itself with status {status}"
    )
    assert start("srun", 1, str(running.run.path.parent / "train.py")).wait().statuses == [77]


@PRELOADED
@pytest.mark.parametrize(("status", "known", "recorded"), [(0, "requeue", 75), (0, "done", 0), (3, "requeue", 76)])
def test_a_program_that_handles_the_notice_may_not_be_complete(start, script, status, known, recorded):
    text = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({status}))\nprint('ready', flush=True)\ntime.sleep(60)"
    running = start("srun", 2, script(text), SLURMDDP_EXIT_0_AFTER_SIGNAL=known)
    running.until_said("ready")
    running.signal(signal.SIGTERM)
    assert running.wait().record(0).startswith(f"{recorded} ")


@PRELOADED
def test_a_program_that_ignores_the_notice_and_ends_is_complete(start, script):
    waits = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(1)"
    running = start("srun", 1, script(waits))
    running.until_said("ready")
    running.processes[0].send_signal(signal.SIGTERM)
    assert running.wait().record(0) == "0 done\n"


@PRELOADED
def test_ranks_do_not_outlive_their_launcher(start, script):
    running = start("fork", 2, script("print('ready', os.getpid(), flush=True); time.sleep(60)"))
    running.until_said("ready")
    pids = [int(running.run.rank_log("17", "0.0", rank).read_text().split()[1]) for rank in range(2)]
    running.processes[0].kill()
    assert running.wait().statuses == [-signal.SIGKILL]
    until(lambda: not any(map(is_alive, pids)))


def test_forked_ranks_share_the_cpus_and_draw_different_numbers(start, script):
    path = script(
        "import numpy\n"
        "threads = os.environ.get('OPENBLAS_NUM_THREADS')\n"
        "print(sorted(os.sched_getaffinity(0)), '|', numpy.random.rand(), threads)\n"
    )
    cpus = sorted(os.sched_getaffinity(0))
    ended = start("fork", 2, path).wait()
    parts = [ended.log(rank).split("|") for rank in range(2)]
    half = len(cpus) // 2
    wanted = [cpus[:half], cpus[half : 2 * half]] if half else [cpus, cpus]
    assert [part[0].strip() for part in parts] == list(map(str, wanted))
    assert parts[0][1] != parts[1][1]
    assert parts[0][1].endswith(" None\n")


def test_torch_is_imported_once_for_the_node(start, script):
    running = start("fork", 2, script("print('torch._dynamo' in sys.modules, os.getppid())"))
    ended = running.wait()
    assert {ended.log(rank) for rank in range(2)} == {f"True {running.processes[0].pid}\n"}


def test_a_forked_rank_imports_nothing_of_ours_again(start, script):
    """Each import costs every rank its CPU: thirty modules were three quarters of what came before the program."""
    running = start("fork", 2, script(""), PYTHONPROFILEIMPORTTIME="1")
    logs = [running.wait().log(rank) for rank in range(2)]
    imported = {line.rpartition("|")[2].strip() for log in logs for line in log.splitlines() if "import time:" in line}
    assert {name for name in imported if name.startswith("slurmddp")} == set()


def test_a_head_nobody_knows_is_on_record_and_can_be_tried_again(start):
    ended = start("srun", 1, "--epochs=1", MASTER_ADDR="no-such-host.invalid").wait()
    assert ended.statuses == [76]
    assert ended.record(0).startswith("76 rank 0 on n1: MASTER_ADDR no-such-host.invalid does not resolve on n1")
    assert ended.log(0) == f"Error: {ended.record(0).removeprefix('76 rank 0 on n1: ')}"
