"""Eight kinds of mistakes that a reader of logs makes: each has texts as people have met them, and what is right."""

import pytest

from slurmddp.diagnose.evidence import read_log_evidence
from slurmddp.diagnose.rule_types import NONE, UNKNOWN
from slurmddp.diagnose.verdict import judge
from slurmddp.slurm.job_info import JobInfo

from .test_metamorphic import mix_with_steps
from .test_output_files import judge as judge_output

STEPS = "".join(f"step {step}: loss {3 - step / 100:.3f}\n" for step in range(40))
BEGIN = "Loading the data of /data/train\nmodel: 124 M parameters\n"
TRACE = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    main()\n'
RAISED = f"{TRACE}ValueError: the batch is empty\n"
EXITED = "srun: error: n1: task 1: Exited with exit code 1\n"
END = "CANCELLED AT 2026-03-04T12:00:00"


@pytest.fixture
def tell(tmp_path):
    def tell_log(text: str):
        (tmp_path / "x.out").write_text(text)
        job = JobInfo(job_id="17", state="", source="files", name="x")
        return judge(job, read_log_evidence([tmp_path / "x.out"]))

    return tell_log


# 1: Slurm's own last words are final, however much is printed behind them, unless a start follows
LAST_WORDS = {
    f"slurmstepd: error: *** JOB 17 ON n1 {END} DUE TO TIME LIMIT ***\n": "time-limit",
    f"slurmstepd: error: *** JOB 17 ON n1 {END} ***\n": "cancelled",
    f"slurmstepd: error: *** STEP 17.0 ON n1 {END} DUE TO TIME LIMIT ***\n": "time-limit",
    f"slurmstepd: error: *** JOB 17 ON n1 {END} DUE TO PREEMPTION ***\n": "preempted",
    f"slurmstepd: error: *** JOB 17 ON n1 {END} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n": "node-lost",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.\n": (
        "out-of-memory"
    ),
}
LATE = {
    "steps": lambda number: "".join(f"step {40 + step}: loss {2 - step / 9000:.4f}\n" for step in range(number)),
    "dying ranks": lambda number: "".join(
        f"[rank{at % 8}]: {line}\n" for at in range(number // 5) for line in (*TRACE.splitlines(), "KeyboardInterrupt")
    ),
    "Slurm's": lambda number: "".join(f"srun: error: n{at % 9}: task {at}: Terminated\n" for at in range(number)),
    "a launcher's": lambda number: "".join(
        f"Killing subprocess {at}\n" + "Main process received SIGTERM, exiting\n" * (at % 3 == 0)
        for at in range(number)
    ),
    "NCCL's": lambda number: "".join(
        f"n1:47{at}:47{at} [1] NCCL INFO comm 0x55d{at} rank 1 nranks 4 cudaDev 1 busId 2000 - Abort COMPLETE\n"
        for at in range(number)
    ),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("number", [12, 100, 5000])
@pytest.mark.parametrize("words", LAST_WORDS)
def test_the_last_words_of_slurm_are_final_behind_noise(tell, words, number, late):
    assert tell(BEGIN + STEPS + words + LATE[late](number)).cause == LAST_WORDS[words]


LIMIT = f"slurmstepd: error: *** JOB 17 ON n1 {END} DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize("before", ["chunk 1:   8%|8 | 510/6000 [1:28:35<41:26:24, 27.17s/file]", " 0: "])
def test_the_time_limit_is_seen_behind_what_has_no_end_of_line(tell, before):
    script = "/var/spool/slurmd/job17/slurm_script: line 23: module: command not found\n"
    bars = "".join(f"chunk 1:   {at}%|8 | {at}/6000 [1:28:35<41:26:24, 27.17s/file]\n" for at in range(9))
    killed = "".join(f"srun: error: n{at}: tasks {at}-{at + 3}: Terminated\n" for at in range(9))
    assert tell(script + bars + before + LIMIT + killed).cause == "time-limit"


def test_a_job_that_slurm_ended_is_over_where_the_next_one_ends_well(tell):
    again = "Setting up the data\nRecovered the state of step 40\nstep 90: loss 2.1\nTraining completed\n"
    assert tell(BEGIN + STEPS + LIMIT.replace(f" ON n1 {END}", " CANCELLED") + again).cause == UNKNOWN


def test_a_list_of_common_causes_is_no_cause(tell):
    said = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: End of file. Some common causes include: (1) the process was killed by the "
        "OOM killer due to high memory usage, (2) ray stop --force was called.\n"
    )
    raised = (
        "ray.exceptions.ActorUnavailableError: The actor d5a128 is unavailable: The actor is temporarily unavailable\n"
    )
    assert tell(BEGIN + STEPS + raised + said).cause == "ray-actor-died"


@pytest.mark.parametrize("words", LAST_WORDS)
def test_they_are_not_where_a_start_follows(tell, words):
    assert tell(BEGIN + STEPS + words + BEGIN + STEPS + RAISED + EXITED).cause == "exception"
    assert judge_output(BEGIN + STEPS + words + BEGIN + STEPS * 3 + "Training finished successfully\n").cause == NONE


# 2: children and parents that die behind the cause
SPAWN = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 132, in _main
    self = reduction.pickle.load(from_parent)
_pickle.UnpicklingError: pickle data was truncated
"""
RAISED_IN_CHILD = f"""{TRACE}torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
{TRACE}KeyError: 'lr'
"""
EXITED_PARENT = f"{TRACE}torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1\n"
CHILD_FAILED = """Traceback (most recent call last):
  File "/opt/lib/torch/distributed/run.py", line 900, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-03-04_12:00:00
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 4713)
"""
BROKEN_PIPE = f"{TRACE}BrokenPipeError: [Errno 32] Broken pipe\n"
PEER = f"{TRACE}RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer\n"
WATCHDOG = (
    "[rank0]:[E304 12:00:09.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
)


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (RAISED + SPAWN, "exception", "batch is empty"),
        (SPAWN + RAISED, "exception", "batch is empty"),
        (RAISED_IN_CHILD, "exception", "'lr'"),
        (EXITED_PARENT + RAISED, "exception", "batch is empty"),
        (RAISED + EXITED_PARENT, "exception", "batch is empty"),
        (RAISED + CHILD_FAILED, "exception", "batch is empty"),
        (RAISED + BROKEN_PIPE, "exception", "batch is empty"),
        (BROKEN_PIPE + RAISED, "exception", "batch is empty"),
        (PEER + RAISED + PEER, "exception", "batch is empty"),
        (f"^C{TRACE}KeyboardInterrupt\n" + WATCHDOG, "interrupted", "interrupted"),
        (RAISED + "Terminated\n" + EXITED, "exception", "batch is empty"),
        (SPAWN, UNKNOWN, "not known"),
    ],
)
def test_who_dies_behind_the_cause_is_not_it(tell, text, cause, words):
    found = tell(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


# 3: prose is no fact
RAY = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit detail: "
    "Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) "
    "The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The "
    "worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.\n"
)
HELP = """usage: train.py [-h] [--signal N] [--retry]
  --signal N   the job is cancelled by signal 9 (SIGKILL) after N s
  --retry      try again after CUDA out of memory
"""
IN_DEL = """Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f2b1c4d8a60>
Traceback (most recent call last):
  File "/opt/torch/utils/data/dataloader.py", line 1101, in __del__
    w.join(timeout=5)
AssertionError: can only join a child process
"""
HEARTBEAT = (
    "[rank0]:[F304 12:00:09.1 ProcessGroupNCCL.cpp:1557] [PG ID 0 Rank 0] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
    "Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.\n"
)
GOOD_END = "saved the model\nTraining finished successfully\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (RAISED + RAY, "exception"),
        (RAY, "ray-actor-died"),
        (RAISED + "slurmstepd: error: Exceeded step memory limit at some point.\n" + EXITED, "exception"),
        (HELP + STEPS + RAISED, "exception"),
        (IN_DEL + RAISED, "exception"),
        (RAISED + IN_DEL, "exception"),
        ("Note: if a rank is killed by signal 9, use more --mem.\n" + RAISED, "exception"),
        ("I also tried gloo, and got `RuntimeError: Address already in use` there.\n" + RAISED, "exception"),
        (
            "- Possible causes: CUDA out of memory, Xid 79, a full disk (No space left on device)\n" + RAISED,
            "exception",
        ),
    ],
)
def test_prose_is_no_fact(tell, text, cause):
    assert tell(BEGIN + text).cause == cause


# 4: words of signals
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{STEPS}srun: error: n1: task 1: Killed\n", "rank-killed"),
        (f"{STEPS}srun: error: n1: task 1: Exited with exit code 137\n", "rank-killed"),
        (f"{STEPS}srun: error: n1: task 1: Exited with exit code 139\n", "segfault"),
        (f"{STEPS}srun: error: n1: task 1: Aborted (core dumped)\n", "rank-aborted"),
        (f"{STEPS}srun: error: n1: task 1: Exited with exit code 143\n", "rank-terminated"),
        (f"{STEPS}failed (exitcode: -6) local_rank: 1 (pid: 4713) of binary: /opt/python\n", "rank-aborted"),
        (f"{STEPS}failed (exitcode: -7) local_rank: 1 (pid: 4713) of binary: /opt/python\n", "bus-error"),
        (f"{STEPS}YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Hangup (signal 1)\n", "terminal-closed"),
        (f"{STEPS}Received 15 death signal, shutting down workers\n", "rank-terminated"),
        (f"{STEPS}W0304 12:00:01.1 1 torch/api.py:7] Received 1 death signal, shutting down\n", "terminal-closed"),
        (f"{STEPS}mpirun noticed that process rank 2 with PID 7 on node n1 exited on signal 15 (Terminated).\n",
         "rank-terminated"),
        (f"{STEPS}srun: error: n1: task 1: Hangup\n", "terminal-closed"),
        (f"{STEPS}process 7 killed by signal: Hangup\n", "terminal-closed"),
        (f"{RAISED}Received 15 death signal, shutting down workers\n", "exception"),
        (f"{RAISED}srun: error: n1: task 0: Exited with exit code 143\n{EXITED}", "exception"),
    ],
)  # fmt: skip
def test_words_of_signals(tell, text, cause):
    assert tell(text).cause == cause


# 5: who, and where
def label(text: str, rank: int) -> str:
    return "".join(f"{rank}: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "rank", "host"),
    [
        (label(RAISED, 3) + "srun: error: n2: task 3: Exited with exit code 1\n", 3, "n2"),
        (label(PEER, 0) + label(RAISED, 3) + "srun: error: n1: task 0: Exited with exit code 1\n"
         "srun: error: n2: task 3: Exited with exit code 1\n", 3, "n2"),
        (RAISED + "srun: error: n2: task 5: Exited with exit code 1\n", 5, "n2"),
        (STEPS + "srun: error: n2: tasks 4-7: Killed\nsrun: error: n1: tasks 0-3: Killed\n", 4, "n2"),
        (STEPS + "srun: error: gpu[01-02]: tasks 0-15: Killed\n", 0, ""),
        (label(STEPS, 0) + label(RAISED, 1), 1, ""),
    ],
)  # fmt: skip
def test_who_failed_and_where(tell, text, rank, host):
    found = tell(text)
    assert (found.rank, found.host) == (rank, host)


def test_a_rank_that_stands_in_a_watchdogs_line_alone_waited(tell):
    found = tell(STEPS + WATCHDOG.replace("Rank 0", "Rank 3").replace("rank0", "rank3"))
    assert found.cause == "collective-timeout"
    assert found.rank is None or found.rank != 3, "it is the one that waited"


def test_no_more_ranks_came_than_there_are(tell):
    joined = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 4/2 clients joined.\n"
    assert "4 of 2" not in tell(TRACE + joined).what


# 6: kinds that are mixed up
ILLEGAL = (
    "CUDA Error:\n    Error code: 700\n    Error text: an illegal memory access was encountered\n\n"
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 1 PID 71 RUNNING AT n1\n"
    "=   KILLED BY SIGNAL: 9 (Killed)\n"
)
SET_UP = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
"""After it, a batch script goes on."""
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 1.02 GiB is free. Process 4711 has 70.12 GiB memory in use. Including non-PyTorch memory, this process "
    "has 7.90 GiB memory in use.\n"
)


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (f"{TRACE}RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n",
         "torn-checkpoint", ""),
        (TRACE.replace("main()", "with np.load(path) as part:") + "zipfile.BadZipFile: File is not a zip file\n",
         "data-corrupt", ""),
        (f"{TRACE}ModuleNotFoundError: No module named 'numpy'\n", "import-error", "no module numpy"),
        (f"{TRACE}ModuleNotFoundError: No module named 'utils.data'\n", "import-error", "program's own"),
        (TRACE + FULL, "gpu-memory", "another process (4711) has 70.12 GiB"),
        (TRACE + FULL.replace("70.12", "0.42"), "gpu-memory", "the GPU is full"),
        (STEPS + GOOD_END + BEGIN + STEPS + RAISED + EXITED, "exception", "batch is empty"),
        (SET_UP, "shell-setup", "conda activate"),
        (STEPS + ILLEGAL, "illegal-address", "accessed memory"),
        (f"{SET_UP}{RAISED}", "exception", "batch is empty"),
        (f"{SET_UP}  File \"train.py\", line 72\n    with open(, 'w') as f:\nSyntaxError: invalid syntax\n",
         "exception", "SyntaxError"),
        (f"{SET_UP}{TRACE}ModuleNotFoundError: No module named 'torch'\n", "shell-setup", "conda activate"),
    ],
)  # fmt: skip
def test_kinds_that_are_easily_mixed_up(tell, text, cause, words):
    found = tell(text)
    assert (found.cause, words in found.what) == (cause, True), found.what


# 8: healthy logs are not accused
@pytest.mark.parametrize(
    "behind",
    [
        "",
        IN_DEL,
        HEARTBEAT,
        "wandb: ERROR Dropped streaming file chunk (see wandb/debug-internal.log)\n",
        "Job 17 ended at Wed Mar  4 12:00:05 CET 2026\nState: COMPLETED (exit code 0)\n",
        "[rank0]:[W304 12:00:00.1 ProcessGroupNCCL.cpp:1524] Warning: destroy_process_group() was not called\n",
        SPAWN,
        BROKEN_PIPE.replace(TRACE, "Exception ignored in: <_io.TextIOWrapper name='<stdout>' mode='w'>\n"),
    ],
)
def test_a_healthy_log_is_not_accused(behind):
    found = judge_output(BEGIN + STEPS * 3 + GOOD_END + behind)
    assert found.cause in (NONE, UNKNOWN), found.what
    assert found.cause == NONE or behind


DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
OPENED = """Traceback (most recent call last):
  File "/home/me/read.py", line 4, in read
    part = open_part(name)
  File "/home/me/parts.py", line 2, in open_part
    raise PartError(name)
parts.PartError: part 7 has no header
"""
IN_HANDLER = """Traceback (most recent call last):
  File "/home/me/read.py", line 20, in <module>
    read("a")
  File "/home/me/read.py", line 6, in read
    {}
TypeError: can only concatenate str (not "int") to str
"""
LEFT = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.\n"
ENDED_WORKER = "RuntimeError: DataLoader worker (pid 7) exited unexpectedly with exit code 3. Details are lost.\n"
UNSTARTED = "slurmstepd: error: pyxis: couldn't start container\n"
STOPPED_STEP = f"srun: forcing job termination\nslurmstepd: error: *** STEP 17.0 ON n1 {END} ***\n"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (OPENED + DURING + IN_HANDLER.format("print('cannot open ' + 7)"), "exception", "has no header"),
        (OPENED + DURING + IN_HANDLER.format("raise TypeError(text)"), "exception", "TypeError"),
        (OPENED + DURING + IN_HANDLER.replace("in read\n    {}", "in other\n    x()"), "exception", "TypeError"),
        (f"{TRACE}{LEFT}{DURING}{TRACE}KeyboardInterrupt\n", "rank-missing", "only 1 of 2"),
        (f"{TRACE}{ENDED_WORKER}{DURING}{TRACE}RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly\n",
         "loader-failed", "status 3"),
        (f"{TRACE}RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly\n", "loader-killed", "or ended by"),
        (f"{STEPS}{STOPPED_STEP}srun: error: n1: task 0: Killed\n", "cancelled", "told to stop"),
        (f"{STEPS}srun: error: n1: task 1: Segmentation fault\n{STOPPED_STEP}", "segfault", ""),
        (f"{TRACE}torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGTERM\n",
         "rank-terminated", "rank 2"),
        ("[n1][btl_tcp_frag.c:9:recv] recv: readv error (0x7f, 16)\n\tBad address(1)\n", "mpi-failed", "buffer"),
        (f"{UNSTARTED}slurmstepd: error: Failed to invoke spank plugin stack\n", "container-failed", "start"),
        ("run.sh: line 3: syntax error: unexpected end of file\n", "script-syntax", "line 3"),
    ],
)  # fmt: skip
def test_what_hides_the_cause(tell, text, cause, words):
    found = tell(text)
    assert (found.cause, words in found.what) == (cause, True), found.what


def test_a_failure_before_the_time_limit_is_told_with_it(tell):
    found = tell(f"{RAISED}slurmstepd: error: *** JOB 17 ON n1 {END} DUE TO TIME LIMIT ***\n")
    assert found.cause == "exception"
    assert "until its time limit" in found.others


@pytest.mark.parametrize("begin", [STEPS, ""])
def test_noise_of_slurmstepd_about_its_cgroups_is_no_end(begin):
    noise = "slurmstepd: error: Cannot write to cgroup.procs for (null)\n"
    assert judge_output(begin + noise).cause == NONE


def test_a_script_that_went_on_after_its_set_up_and_is_done_is_not_accused():
    assert judge_output(f"{SET_UP}Starting\nscores: 0.75 0.98 0.99\nDONE\n").cause == UNKNOWN


UNKNOWN_MODULE = 'Lmod has detected the following error: The following module(s) are unknown: "gcc/99"'
BROKEN_LINE = "/var/spool/slurmd/job17/slurm_script: line 9: syntax error near unexpected token `)'\n"
EPOCHS = "".join(f"epoch 3, step {step}: loss 2.1\n" for step in range(10, 50))
WARNED = "/home/me/train.py:24: FutureWarning: this call is deprecated\n"
LOGGED = """Could not load the fast kernels: 'NoneType' object has no attribute 'major'
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/kernels/__init__.py", line 8, in <module>
    lib = load()
  File "/opt/env/lib/python3.12/site-packages/kernels/load.py", line 3, in load
    return version.major
AttributeError: 'NoneType' object has no attribute 'major'
Kernels are slow
"""
"""A library caught it while it was imported, and printed it."""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{UNKNOWN_MODULE}\n{BROKEN_LINE}", "script-syntax"),
        (f"{UNKNOWN_MODULE}\n", "shell-setup"),
        (f"{UNKNOWN_MODULE}\n{WARNED}", UNKNOWN),
        (f"{SET_UP}{WARNED}{SET_UP.replace(' activate', ' deactivate')}", UNKNOWN),
        (f"{UNKNOWN_MODULE}\nslurm_script: line 9: train: command not found\n", "shell-setup"),
        (BROKEN_LINE.replace("/var/spool/slurmd/job17/slurm_script", "bash: BASH_FUNC_module()"), UNKNOWN),
        (f"{UNKNOWN_MODULE}\n{STEPS}{PEER}{EXITED}", UNKNOWN),  # the rank that failed before it is not seen
        (f"{EPOCHS}{RAISED}{EPOCHS[:60]}", "exception"),  # where a rank fails, others are at work for a while
        (f"{LOGGED}Device set to use cuda:0\nit says: forty-two\n", UNKNOWN),
        (f"{LOGGED}{RAISED}", "exception"),
        (LOGGED.replace("site-packages/kernels/__init__.py", "train.py"), "exception"),
    ],
)
def test_what_the_program_or_its_script_ran_on_after_is_no_cause(text, cause):
    found = judge_output(text)
    assert found.cause == cause, found.what
    assert "major" not in found.what or "train.py" in text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[n1:7] *** An error occurred in MPI_Send\n[n1:7] *** reported by process [1,0]\n", "mpi-failed"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered\n", "illegal-address"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered\ntry once more\n", "rank-killed"),
    ],
)
def test_a_launcher_kills_the_ranks_of_a_program_that_failed_and_did_not_run_on(tell, text, cause):
    assert tell(f"{BEGIN}{text}srun: error: n2: task 1: Killed\n").cause == cause


def test_what_a_healthy_program_logs_at_every_epoch_is_no_cause():
    epoch = f"{STEPS}validation error 0.12\nWARNING: a worker was killed, restarted it\n"
    assert judge_output(BEGIN + epoch * 6).cause == NONE


OF_LAUNCHER = """Traceback (most recent call last):
  File "/opt/lib/torch/distributed/launch.py", line 340, in <module>
    main()
  File "/opt/lib/torch/distributed/launch.py", line {}
    {}
{}
"""
IN_SIGNAL = "Killing subprocess 471\n" + OF_LAUNCHER.format(
    "298, in sigkill_handler", "if last_return_code is not None:", "NameError: name 'last_return_code' is not defined"
)
SIGNALLED = OF_LAUNCHER.format("330, in main", "wait()", "torch.api.SignalException: Process 471 got signal: 2")
CLOSING = OF_LAUNCHER.format("331, in main", "close()", "AttributeError: 'NoneType' object has no attribute 'close'")
INTERRUPTED = f"^C{TRACE}KeyboardInterrupt\n"
SETTINGS = (abs, all, any, bin, bool, bytes, chr, dict, dir, eval, exec, filter, float, hash, hex, id, int, iter, len)
SET_UP_LINES = "Rank 0 has loaded the data\nusing amp\nit has 42 M parameters\nRank 0 waits\n"
RETRIES = "".join(
    f"[W socket.cpp:601] [c10d] The IPv{at} network addresses of (n7, 29500) cannot be retrieved (gai error: -3 - "
    "Temporary failure in name resolution).\n"
    for at in (6, 4, 6, 4)
)
CANCELLED = f"slurmstepd: error: *** JOB 17 ON n1 {END} ***\nsrun: error: n1: task 1: Terminated\n"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (STEPS + IN_SIGNAL, "interrupted", "launcher"),
        (STEPS + SIGNALLED, "interrupted", "launcher"),
        (STEPS + SIGNALLED + DURING + CLOSING, "interrupted", "launcher"),
        (RAISED + IN_SIGNAL, "exception", "batch is empty"),
        (RAISED + SIGNALLED, "exception", "batch is empty"),
        (CLOSING, "exception", "no attribute 'close'"),
        (RAISED + SET_UP_LINES + INTERRUPTED, "exception", "batch is empty"),
        (RAISED + "".join(f"{at.__name__} = 1\n" for at in SETTINGS) + INTERRUPTED, "exception", "batch is empty"),
        (RAISED + STEPS + INTERRUPTED, "interrupted", ""),
        (STEPS + RAISED + "step 41: loss 2\n" + INTERRUPTED, "interrupted", ""),
        (RAISED + "Rank 0 waits\n" + CANCELLED, "exception", "batch is empty"),
        (STEPS + RAISED + STEPS[:80] + CANCELLED, "cancelled", ""),
        (RETRIES + CANCELLED, "name-unresolved", "n7"),
        (RETRIES + INTERRUPTED, "name-unresolved", "n7"),
        (RETRIES + LIMIT, "name-unresolved", "n7"),
        (RETRIES + STEPS + LIMIT, "time-limit", ""),
        (SET_UP + CANCELLED, "cancelled", ""),
        (RETRIES + STEPS + CANCELLED, "cancelled", ""),
        (INTERRUPTED + WATCHDOG, "interrupted", ""),
        (WATCHDOG + INTERRUPTED, "collective-timeout", ""),
    ],
)
def test_people_end_a_job_that_has_failed_or_hangs_and_that_is_not_its_cause(tell, text, cause, words):
    found = tell(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


STORE_IS_GONE = """\
[rank1]:[W901 21:19:08.277343715 TCPStore.cpp:125] [c10d] recvValue failed on Socket(fd=51): Connection reset by peer
Exception raised from recvBytes at /pytorch/c10d/Utils.hpp:675 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f15e42d9eb0 in /opt/torch/lib/libc10.so)
[rank1]:[W901 21:19:08.277343716 ProcessGroupNCCL.cpp:1783] [PG ID 0] Failed to check the "should dump" flag on TCPStore
"""
NO_HEARTBEAT = """\
[rank3]:[E1126 03:11:47.123456789 ProcessGroupNCCL.cpp:1413] [Rank 3] Heartbeat monitor timed out! Process will be ended
n1:47:48 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : connection abort
"""


@pytest.mark.parametrize("end", ["Training completed in 0:41:02\n", "Saved the final model to /out\n"])
@pytest.mark.parametrize("noise", [STORE_IS_GONE, STORE_IS_GONE * 9, NO_HEARTBEAT])
def test_what_torch_and_nccl_log_after_a_good_end_says_nothing(end, noise):
    found = judge_output(BEGIN + STEPS + end + noise)
    assert (found.cause, found.what, found.evidence[0].text) == (NONE, "it ended well", end.strip())
    assert judge_output(BEGIN + STEPS + end + noise + RAISED).cause == "exception"
    assert "no failure" not in judge_output(BEGIN + STEPS + noise).what


AGENT = "INFO:torch.distributed.elastic.agent.server.api:"
KILLED_WORKER = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 4713) of binary: p\n"
    f"{AGENT}[default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"
)
FINISHED = f"{AGENT}Local worker group finished (WorkerState.SUCCEEDED). Waiting 300 seconds for other agents\n"


@pytest.mark.parametrize("end", [STEPS, f"step 41: loss 2\n{FINISHED}", "one more epoch\nTraining finished\n"])
@pytest.mark.parametrize("failed", [KILLED_WORKER, RAISED + KILLED_WORKER, KILLED_WORKER + STEPS + KILLED_WORKER])
def test_workers_that_were_restarted_are_not_why_the_run_failed(tell, failed, end):
    assert judge_output(BEGIN + STEPS + failed + end).cause == NONE
    assert tell(BEGIN + STEPS + failed + STEPS + TRACE + "KeyError: 'lr'\n").what.endswith("KeyError: 'lr'")
    assert tell(BEGIN + STEPS + failed).cause in ("rank-killed", "exception")


TAKEN_DOWN = "[E ProcessGroupNCCL.cpp:460] To avoid data inconsistency, we are taking the entire process down.\n"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (f"{STEPS}*** Error in `python': double free or corruption (fasttop): 0x7f00 ***\n", "rank-aborted", "fasttop"),
        (f"{STEPS}free(): invalid pointer\nAborted (core dumped)\n", "rank-aborted", "overwritten"),
        (f"{STEPS}malloc_consolidate(): unaligned fastbin chunk detected\n", "rank-aborted", "fastbin"),
        (f"{TRACE}bdb.BdbQuit\n\n{INTERRUPTED}", "no-terminal", "breakpoint"),
        ("job.sh: line 14: 9 Killed  python x\nTERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n",
         "out-of-memory", "LSF"),
        (f"{STEPS}slurmstepd: error: *** STEP 17.0 ON n1 {END} ***\n[rank: 3] Received SIGTERM: 15\n",
         "cancelled", "step"),
        (f"{PEER}slurmstepd: error: *** STEP 17.0 ON n1 {END} ***\n", UNKNOWN, "lost its peer"),
        (f"{TAKEN_DOWN}failed (exitcode: -6) local_rank: 0 (pid: 7) of binary: p\n", "nccl-failed", "collective"),
        (f"{STEPS}n1:39:302 [0] NCCL INFO [Service thread] Connection closed by localRank 1\n", NONE, "no failure"),
        ("[n1:7] PMIX ERROR: ERROR in file src/mca/gds/ds12/gds_ds12_lock_pthread.c at line 169\n", NONE, ""),
    ],
)  # fmt: skip
def test_ends_that_few_words_tell_of(text, cause, words):
    found = judge_output(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


WAITING = (
    "INFO:root:Waiting in store based barrier to initialize process group for rank: {}, key: k (world_size=8, {}=3)\n"
)
WAITS = "".join(WAITING.format(rank, "worker_count") for rank in (0, 2, 1))
PLAIN = "".join(f"Epoch {at}: accuracy 0.{at}\n" for at in range(10, 14))


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (RETRIES, "name-unresolved", "n7"),
        (RETRIES + PLAIN, NONE, ""),
        (RETRIES + "Training finished\n", NONE, "ended well"),
        (WAITS, "rank-missing", "only 3 of 8"),
        (WAITS + CANCELLED, "rank-missing", "only 3 of 8"),
        (WAITS.replace("size=8", "size=2"), "world-size", "3 reached"),
        (WAITS + PLAIN, NONE, ""),
        (WAITS + PLAIN + CANCELLED, "cancelled", ""),
        (WAITS + RAISED, "exception", "batch is empty"),
    ],
)
def test_a_program_that_waited_and_printed_more_did_not_hang_there(text, cause, words):
    found = judge_output(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


MPIRUN = """Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
mpirun detected that one or more processes exited with non-zero status, thus causing
"""
OF_RANK = "subprocess.CalledProcessError: Command '['x.py', '--local_rank=1']' returned non-zero exit status 1."
SCALE = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to "


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (OF_LAUNCHER.format("257, in main", "cmd=cmd)", OF_RANK), UNKNOWN, ""),
        (RAISED + OF_LAUNCHER.format("257, in main", "cmd=cmd)", OF_RANK), "exception", "batch is empty"),
        (MPIRUN, UNKNOWN, ""),
        (f"{TRACE}Exception: Minimum loss scale reached (0.0001). Your loss is exploding.\n", "not-finite", ""),
        (f"{SCALE}1.45e-303\n" * 4, "not-finite", "303"),
        (f"{SCALE}32768.0\n" * 4, NONE, ""),
        (f"{TRACE}RuntimeError: storage has wrong size: expected 512 got 65536\n", "torn-checkpoint", ""),
    ],
)
def test_what_launchers_and_half_precision_say_last(text, cause, words):
    found = judge_output(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


SCRIPTS_OWN = """cat: '': No such file or directory
/var/spool/slurmd/job17/slurm_script: line 377: python: command not found
"""
TRACKERS_OWN = """Traceback (most recent call last):
  File "/users/me/.local/bin/wandb", line 5, in <module>
    from wandb.cli.cli import cli
ModuleNotFoundError: No module named 'dataclasses'
"""
LABELLED = "".join(
    f"{rank}: [rank{rank}]: {line}\n"
    for rank in (0, 1)
    for line in (
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 8, in <module>',
        "AssertionError: class input value 5 and checkpoint value 7 do not match",
    )
)
NO_TORCH = "".join(f"{rank}: ModuleNotFoundError: No module named 'torch'\n" for rank in (0, 1))
OF_CACHE = "".join(
    f"3: [rank3]:W0619 13:43:42.03 2376 torch/_inductor/codecache.py:1045] [1/2] {line}\n"
    for line in (
        "fx graph cache unable to load compiled graph",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/dist-packages/torch/_inductor/codecache.py", line 1041, in iterate',
        "FileNotFoundError: [Errno 2] No such file or directory: '/scratch/me/fxgraph/zz/.1.tmp'",
    )
)
CAUGHT = """Import of quick_gelu from megatron.core.fusions failed with: Traceback (most recent call last):
  File "/workspace/NeMo/nemo/utils/import_utils.py", line 319, in safe_import_from
    return getattr(imported_module, symbol), True
AttributeError: module 'megatron.core.fusions' has no attribute 'quick_gelu'
"""
OF_LIBRARY = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/swift/cli/rlhf.py", line 5, in <module>
    rlhf_main()
ValueError: DeepSpeed is not compatible with `device_map`.
"""
STEP_ENDED = """srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 40.14 ON n1 CANCELLED AT 2025-10-08T00:32:36 ***
2: [rank: 2] Received SIGTERM: 15
"""


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (SCRIPTS_OWN + LABELLED, "exception", "do not match"),
        (SCRIPTS_OWN + NO_TORCH, "command-missing", "python"),
        (TRACKERS_OWN + LABELLED, "exception", "do not match"),
        (TRACKERS_OWN + NO_TORCH, "import-error", "dataclasses"),
        (OF_CACHE + STEPS, NONE, "no "),
        (CAUGHT + STEPS, NONE, "no "),
        (OF_LIBRARY, "exception", "device_map"),
        (STEP_ENDED, "cancelled", "the step was cancelled"),
        ("34: Last error:\n34: Failed to initialize any NET plugin\n", "network-plugin", "none of its network plugins"),
        ("WARNING: exiting due to 2 SIGINT's within 1 second.\n", "interrupted", "SIGINT"),
    ],
)
def test_what_a_batch_script_said_before_its_ranks_began_and_what_was_caught_are_no_cause(text, cause, words):
    found = judge_output(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


@pytest.mark.parametrize(
    "end",
    [
        "2026-01-09 12:22:25,998 | INFO | Reached max steps (200). Stopping training.\n",
        "2026-01-09 12:22:25 train INFO: Total training time: 2:49:33.357978 (0.5087s / it)\n",
        "Averaged stats: loss: 50.95 (76.93)\nTraining time 6:57:19\n",
        "End: Fri 14 Nov 14:25:18 CET 2025\nExit code: 0\n========\n✓ SUCCESS!\n",
        "model saved to runs/1/ckpt_976.pt\nSPS: 12279\nmodel saved to runs/1/final_ckpt.pt\n",
        "Finished training! It took 2 hours, 44 minutes\n",
        "100 epochs completed in 0.554 hours.\nResults saved to runs/7\n",
        '0: :::MLLOG {"key": "run_stop", "value": null, "metadata": {"lineno": 9, "status": "success"}}\n',
    ],
)
def test_more_words_of_a_good_end(end):
    found = judge_output(BEGIN + STEPS + end)
    assert (found.cause, found.what) == (NONE, "it ended well"), found.what


SPINNER = "".join(f"wandb: {sign} 0.009 MB of 0.0{at} MB uploaded\n" for at in range(10, 90) for sign in "-\\|/")
FULL_GPU = f"{TRACE}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.90 GiB. GPU 0 is full\n"
GIT_ROOT = "ERROR:2026-03-02 11:56:34,332:git root error: Cmd('git') failed due to: exit code(128)\n"
OF_LOGGING = f"--- Logging error ---\n{BROKEN_PIPE}Message: 'Parent appears to have exited, shutting down.'\n"
OF_BITSANDBYTES = "/venv/bitsandbytes/libbitsandbytes_cpu.so: undefined symbol: cadam32bit_grad_fp32\n"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (FULL_GPU + SPINNER + WATCHDOG, "gpu-memory", ""),
        (
            STEPS + "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0xbc (0x40 in libc10.so)\n",
            NONE,
            "no failure",
        ),
        ("[n1:11547] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168\nstarted\n", NONE, "no failure"),
        (
            LIMIT + "".join(f'[default{at}]:{at}  File "/usr/lib/a.py", line 9 in _main\n' for at in range(40)),
            "time-limit",
            "",
        ),
        (
            RAISED
            + "".join(f"INFO: [x][epoch:  {at}, iter:     {at}00, lr:(2e-05,)] l_mos: 3e-03\n" for at in range(6)),
            UNKNOWN,
            "",
        ),
        (STEPS + GIT_ROOT + "wandb: View run at https://wandb.ai/me/r\nthe weights are loaded\n", NONE, ""),
        (OF_LOGGING, UNKNOWN, ""),
        (OF_BITSANDBYTES + "the tree is built\n", NONE, ""),
        (f"{STEPS}^CTraceback (most recent call last):\n", "interrupted", "SIGINT"),
        (
            f"{STEPS}{IN_DEL.replace('AssertionError: can only join a child process', 'KeyboardInterrupt: ')}",
            "interrupted",
            "SIGINT",
        ),
        (f"{STEPS}LOGS - Keyboard interruption. Exiting from early training\n", "interrupted", "SIGINT"),
        (f"{STEPS}Detected KeyboardInterrupt, attempting graceful shutdown ...\n", "interrupted", "SIGINT"),
    ],
)
def test_what_trackers_and_libraries_print_beside_a_failure(text, cause, words):
    found = judge_output(BEGIN + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


PREFETCHER = f"{TRACE}TimeoutError: the prefetcher gave no batch in 600 s\n"
IN_SCRIPT = "/var/spool/slurmd/job17/slurm_script: line 31: ...: command not found\n"
DYNAMO = "W0530 14:48:26.433000 2622492 site-packages/torch/_dynamo/convert_frame.py:1233] "
UNCONVERTED = "".join(
    f"{DYNAMO}{line}\n"
    for line in (
        "WON'T CONVERT forward /home/me/model.py line 90",
        "Traceback (most recent call last):",
        *['  File "/venv/site-packages/torch/_inductor/graph.py", line 7, in run', "    return go()"] * 60,
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "SystemError: PY_SSIZE_T_CLEAN macro must be defined for '#' formats",
    )
)
MPI_FAILED = (
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    "[1580511823.09] [n1:53890:1] ib_md.c:478 UCX  ERROR ibv_reg_mr(length=131072) failed: Bad address\n"
    "[n1:53890] *** An error occurred in MPI_Bcast\n[n1:53890] *** MPI_ERRORS_ARE_FATAL (processes will now abort,\n"
    f"slurmstepd: error: *** STEP 17.0 ON n1 {END} ***\nsrun: error: n1: task 0: Killed\n"
)
HEADED = "(INFO)[utils.py:342] DATASET=celebA\n(INFO)[utils.py:343] NAME=x\n"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (FULL_GPU + "the queue is empty\n" + PREFETCHER, "gpu-memory", ""),
        (FULL_GPU + "step 40: loss 2\nstep 41: loss 2\n" + PREFETCHER, "gpu-memory", ""),
        (FULL_GPU + STEPS + PREFETCHER, "exception", "prefetcher"),
        (RAISED + IN_SCRIPT, "exception", "batch is empty"),
        (IN_SCRIPT, "command-missing", "..."),
        (UNCONVERTED + "one more line\n" * 9, UNKNOWN, ""),
        (MPI_FAILED, "mpi-failed", "MPI_Bcast"),
        (WATCHDOG + "Fatal Python error: Aborted\n", "collective-timeout", ""),
        ("Fatal Python error: Aborted\n", "rank-aborted", "SIGABRT"),
    ],
)
def test_what_waited_or_ran_on_after_a_failure_is_not_its_cause(text, cause, words):
    found = judge_output(BEGIN + STEPS + text)
    assert (found.cause, words in found.what) == (cause, True), found.what


def test_a_short_last_start_that_ends_well_is_the_last():
    found = judge_output(HEADED + STEPS + RAISED + HEADED + "one bar\nTraining finished\n")
    assert (found.cause, found.what) == (NONE, "it ended well"), found.what


MLPERF = '0: :::MLLOG {"key": "run_stop", "value": null, "metadata": {"lineno": 9, "status": "success"}}\n'


@pytest.mark.parametrize("end", [MLPERF, "Training done in 42.00 s\nPeak GPU Mem (GB): 7.92\n", "Exit code: 0\n"])
@pytest.mark.parametrize(
    "teardown",
    [
        CANCELLED,
        f"slurmstepd: error: *** STEP 17.0 ON n1 {END} ***\nsrun: error: n1: tasks 1-3: Terminated\n",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nsrun: error: n1: task 3: Killed\n",
    ],
)
def test_what_is_left_of_a_job_that_ended_well_may_be_ended(end, teardown):
    found = judge_output(BEGIN + STEPS + end + teardown)
    assert (found.cause, found.what.startswith("it ended well")) == (NONE, True), found.what
    assert judge_output(BEGIN + end + STEPS + teardown).cause != NONE
    assert judge_output(BEGIN + teardown + end).what != found.what
    assert judge_output(BEGIN + STEPS + end + RAISED + teardown).cause == "exception"


@pytest.mark.parametrize(
    "end",
    [
        "Accuracy of the network on the test images: 97.45%\n",
        "**** Final test accuracy: 65.57. ****\nLoRA weights saved to weights/vitb16/seed1/test.pt\n",
        "Validation Results - \n Avg Accuracy: 97.47\n Avg Loss: 0.0813\n",
        "Results saved to runs/detect/train7\n",
        "final_avg_f1: 0.9393\n",
        "Epoch 40/40: 100%|##########| 498/498 [20:28<00:00,  2.47s/it]\n",
        "Epoch 40/40, train loss: 0.0735\n",
    ],
)
def test_a_result_that_is_told_once_and_last_is_an_end(end):
    found = judge_output(BEGIN + STEPS + end)
    assert (found.cause, "seems to have ended well" in found.what) == (NONE, True), found.what


@pytest.mark.parametrize(
    "end",
    [
        "Validation Accuracy: 0.41\n" + STEPS + "Validation Accuracy: 0.45\n",
        "Epoch 3/40, train loss: 0.0735\nValidation Accuracy: 0.45\n",
        "Epoch 40/40: 12%|#         | 60/498 [02:28<18:00,  2.47s/it]\n",
        "Results will be saved to runs/7\n",
        "cannot open the log\nResults saved to runs/7\n",
        "epoch=0 i=2/530 total loss=1.55704 vocoder loss=0.00508\n",
    ],
)
def test_a_result_that_others_may_follow_is_no_end(end):
    found = judge_output(BEGIN + STEPS + end)
    assert found.cause in (NONE, UNKNOWN) and "ended well" not in found.what


AT_EXIT = f"""Error in atexit._run_exitfuncs:
{TRACE}  File "/opt/python3.7/multiprocessing/popen_fork.py", line 28, in poll
    pid, sts = os.waitpid(self.pid, flag)
RuntimeError: DataLoader worker (pid 2369054) is killed by signal: Terminated.
"""
BY_PADDLE = """
I0405 09:49:19.563705 2874946 tcp_store.cc:257] receive shutdown event and so quit from MasterDaemon run loop

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
No stack trace in paddle, may be caused by external reasons.

----------------------
Error Message Summary:
----------------------
FatalError: `Termination signal` is detected by the operating system.
  [TimeInfo: *** Aborted at 1680688160 (unix time) try "date -d @1680688160" if you are using GNU date ***]
  [SignalInfo: *** SIGTERM (@0x3f4002bdc34) received by PID 2874711 (TID 0x7f8d95a6b4c0) from PID 2874420 ***]
"""


@pytest.mark.parametrize("behind", [AT_EXIT, BY_PADDLE], ids=["at exit", "by Paddle"])
def test_what_ends_a_program_that_has_raised_is_not_the_cause(behind):
    found = judge_output(BEGIN + STEPS + RAISED + behind)
    assert found.cause == "exception" and "is killed" not in found.what, found.what


WARNED = "/opt/lib/python3.10/site-packages/tools/load.py:34: UserWarning: built without GPU support\n  warn(\n"
IN_USE = "RuntimeError: The server socket has failed to bind to [::]:29601 (errno: 98 - Address already in use).\n"
NODE_EXITED = "srun: error: n1: tasks 0-7: Exited with exit code 1\n"
CUDNN = "Could not load library libcudnn_ops.so.8. Error: libcudnn_ops.so.8: cannot open shared object file\n"
HUNG = (
    "[rank1]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600071 milliseconds"
    " before timing out.\n"
    "[rank1]:[E1016 03:31:38.929246900 ProcessGroupNCCL.cpp:627] [Rank 1] To avoid data inconsistency, we are taking"
    " the entire process down.\n"
)
MIXED = {
    "a traceback": (CUDNN + RAISED, "import-error"),
    "Slurm's words": (f"{IN_USE}{NODE_EXITED}Error: failed to run torchrun --nproc_per_node=8\n", "launcher-in-rank"),
    "a watchdog's words": (HUNG, "collective-timeout"),
    "warnings of other ranks": (WARNED + RAISED + WARNED * 8, "exception"),
}


@pytest.mark.parametrize("kind", MIXED)
def test_steps_of_other_ranks_between_the_lines_of_a_failure_change_nothing(tell, kind):
    text, cause = MIXED[kind]
    assert tell(text).cause == tell(mix_with_steps(text)).cause == cause


@pytest.mark.parametrize("number", [4, 15])
def test_steps_behind_an_exception_that_none_stands_within_say_that_it_was_caught(number):
    behind = "".join(f"step {40 + step}: loss {2 - step / 9000:.4f}\n" for step in range(number))
    assert judge_output(BEGIN + STEPS + RAISED + behind).cause in (NONE, UNKNOWN)
