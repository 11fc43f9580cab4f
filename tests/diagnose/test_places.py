"""Where a line stands in time, rank, process and attempt decides what it tells, and not its words alone."""

import pytest

from slurmddp.diagnose.rule_types import NONE, UNKNOWN

from .test_kinds import BEGIN, CANCELLED, EXITED, FULL_GPU, LIMIT, RAISED, STEPS, TRACE
from .test_output_files import judge

MISSING_KEY = f"{TRACE}KeyError: 'lr'\n"
LABELS = {"torch": "[rank{}]: ", "srun": "{}: ", "mpirun": "[1,{}]<stderr>:", "torchrun": "[default{}]:", "none": ""}
CLOCK = [(hour, minute) for hour in range(3, 9) for minute in range(60)]
KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.\n"
OF_STEP = LIMIT.replace("JOB 17", "STEP 17.0")


def label(text, rank, form):
    return "".join(f"{form.format(rank)}{line}\n" for line in text.splitlines())


def stamp(text, begin, seconds=20):
    """Return the lines with timestamps of one day, so many seconds apart from `begin`, a day and an hour."""
    day, hour = begin
    times = (hour * 3600 + seconds * index for index in range(len(text.splitlines())))
    clock = (f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}" for at in times)
    return "".join(f"2026-03-{day:02} {at} INFO {line}\n" for at, line in zip(clock, text.splitlines(), strict=True))


# lines of a program that waits
WAITING = {
    "agents": "".join(f"2026-03-04 0{h}:{m:02}:00 [INFO] Waiting 300 seconds for other agents\n" for h, m in CLOCK),
    "heartbeats": "".join(f"2026-03-04 0{h}:{m:02}:00 INFO heartbeat ok, 3/4 nodes\n" for h, m in CLOCK),
    "a scheduler": "".join(f"(autoscaler +{h}h{m}m) Warning: cannot be scheduled: {{'GPU': 1.0}}.\n" for h, m in CLOCK),
    "a bar": "".join(f"Epoch 1:  40%|####  | 40/100 [{h:02}:{m:02}<01:00, 1.0s/it]\n" for h, m in CLOCK),
    "a monitor": "".join(f"[monitor] util 100% mem {70 + m % 3} GB power {m * 7919 % 301} W\n" for _, m in CLOCK),
}
FAILED = {
    "all ranks": (lambda form: "".join(label(RAISED, rank, form) for rank in range(4)), "exception"),
    "a GPU": (lambda form: label(FULL_GPU, 3, form), "gpu-memory"),
    "a host": (lambda _: f"{KILLED}srun: error: n2: task 3: Out Of Memory\n", "out-of-memory"),
}


@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("failed", FAILED)
@pytest.mark.parametrize("end", [LIMIT, OF_STEP, CANCELLED], ids=["limit", "step", "cancelled"])
def test_what_waits_to_the_limit_behind_a_failure_is_no_work(form, waiting, failed, end):
    text, cause = FAILED[failed]
    assert judge(BEGIN + STEPS + text(LABELS[form]) + WAITING[waiting] + end).cause == cause


@pytest.mark.parametrize("end", [LIMIT, CANCELLED])
@pytest.mark.parametrize("failed", [RAISED, FULL_GPU])
def test_what_counts_on_behind_a_failure_is_work(failed, end):
    lines = [f"it {at} top1 {at * 7 % 11}\n" for at in range(300)]
    found = judge(f"{BEGIN}{''.join(lines[:150])}{failed}{''.join(lines[150:])}{end}")
    assert found.cause in ("time-limit", "cancelled")


# the order of time
ARGS = "batch_size: 32\nlr: 0.001\nmodel: resnet50\ndata: /data/imagenet\n"
EPOCHS = "".join(f"Epoch {at}: train loss {2 - at / 50:.3f}\n" for at in range(12))
OLD = stamp(f"starting\n{ARGS}{EPOCHS}", (4, 8))
NEW = stamp(f"starting\n{ARGS}{EPOCHS}", (5, 8))
ERRORS = stamp("deprecated\nalso\nthis\nand that\nas well\nfailed\n", (4, 8), 400)


@pytest.mark.parametrize("old", [OLD, OLD + MISSING_KEY, OLD + "2026-03-04 08:09:00 INFO Training finished\n"])
@pytest.mark.parametrize("head", ["starting", "resuming"])
def test_older_output_behind_the_errors_is_older(old, head):
    old = old.replace("starting", head)
    for end in ("", EXITED):
        found = judge(NEW + RAISED + end + old)
        assert (found.cause, "batch is empty" in found.what) == ("exception", True), found.what
    assert judge(f"{NEW}2026-03-05 08:10:00 INFO Training finished successfully\n{old}").cause == NONE


@pytest.mark.parametrize("output", [f"starting\n{ARGS}{EPOCHS}", f"starting\n{ARGS}{EPOCHS * 9}"])
def test_the_output_of_a_run_behind_its_errors_was_printed_before_them(output):
    assert judge(ERRORS + RAISED + stamp(output, (4, 8), 15)).cause == "exception"


def test_slurms_clock_may_be_another_one():
    assert judge(stamp(f"starting\n{ARGS}{EPOCHS * 5}", (4, 18)) + LIMIT).cause == "time-limit"


# what torch says behind a good end
FRAMES = "".join(f"frame #{at}: c10d::ProcessGroupNCCL::watchdog() + 0x4d (0x7f in libtorch.so)\n" for at in range(40))
TIMED_OUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
WATCHDOG = f"""[rank1]:[E304 12:10:09.1 ProcessGroupNCCL.cpp:607] [Rank 1] {TIMED_OUT}
[rank1]:[E304 12:10:09.2 ProcessGroupNCCL.cpp:627] [Rank 1] To avoid data inconsistency, we take the process down.
Exception raised from checkTimeout at ProcessGroupNCCL.cpp:609 (most recent call first):
{FRAMES}terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG 0 (default_pg) Rank 1] Process group watchdog thread terminated with exception: {TIMED_OUT}
{FRAMES}"""
HEARTBEAT = """\
[rank0]:[E304 12:10:09.1 ProcessGroupNCCL.cpp:1414] [PG 0 Rank 0] Heartbeat monitor timed out! Process will be ended
[rank0]:[F304 12:20:09.1 ProcessGroupNCCL.cpp:1440] [PG 0 Rank 0] Terminating the process due to a watchdog hang.
"""
ABORTED = {
    "nothing": "",
    "srun": "srun: error: n1: task 1: Aborted (core dumped)\nsrun: Terminating StepId=17.0\n",
    "a shell": "Aborted (core dumped)\n",
    "Slurm": LIMIT,
    "torchrun": """E0304 12:20:01.1 47 torch/api.py:874] failed (exitcode: -6) local_rank: 1 (pid: 4713) of binary: p
Traceback (most recent call last):
  File "/opt/lib/torch/distributed/run.py", line 900, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-03-04_12:20:00
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 4713)
  traceback : Signal 6 (SIGABRT) received by PID 4713
""",
}


@pytest.mark.parametrize("end", ["Training completed in 0:41:02\n", "Finished\n", "Saved final model to /out/final\n"])
@pytest.mark.parametrize("noise", [WATCHDOG, WATCHDOG * 4, HEARTBEAT])
@pytest.mark.parametrize("aborted", ABORTED)
def test_an_abort_by_the_watchdog_behind_a_good_end_is_no_failure(end, noise, aborted):
    assert judge(BEGIN + STEPS + end + noise + ABORTED[aborted]).cause == NONE
    assert judge(BEGIN + STEPS + "Saved step 40 to /out\n" + noise + ABORTED[aborted]).cause == "collective-timeout"
    assert judge(BEGIN + "Epoch 1 training completed\n" + STEPS + WATCHDOG).cause == "collective-timeout"


# the rank that is missing
def waited(*ranks):
    return "".join(
        WATCHDOG.partition("\n")[0].replace("ank1", f"ank{at}").replace("Rank 1", f"Rank {at}") + "\n" for at in ranks
    )


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (waited(0, 1), None),
        (waited(0, 1, 3), None),
        (waited(1), None),
        (
            waited(0, 2, 3)
            + label("[E304 12:10:09.2 ProcessGroupNCCL.cpp:621] [Rank 1] Some failed.\n", 1, "[rank{}]:"),
            None,
        ),
        (label("loaded\n", 0, "[rank{}]: ") + waited(0, 1), None),
        ("".join(label("loaded\n", rank, "[rank{}]: ") for rank in range(4)) + waited(0, 1, 3), 2),
        ("".join(label("loaded\n", rank, "[rank{}]: ") for rank in range(4)) + waited(0, 1, 2, 3), None),
    ],
)
def test_a_rank_is_said_to_be_missing_only_where_all_are_seen(text, missing):
    found = judge(BEGIN + text)
    assert (found.cause, found.rank, "; rank" in found.what) == (
        "collective-timeout", missing, missing is not None
    ), found.what  # fmt: skip


# several runs in a file
STEPWISE = "".join(f"[{at}] top1 {50 + at / 10:.2f}\nsaved to /out/last.pt\n" for at in range(8))
NESTED = "".join(
    f"Epoch {at}\n{''.join(f'  iter {step}0 l {2 - at / 50:.3f}' + chr(10) for step in range(5))}validating\nsaving\n"
    for at in range(6)
)
RUN_ENDS = (RAISED, FULL_GPU, LIMIT, f"{TRACE}KeyboardInterrupt\n", RAISED + EXITED)


@pytest.mark.parametrize("run_end", RUN_ENDS)
@pytest.mark.parametrize("steps", [EPOCHS, STEPWISE, NESTED], ids=["epochs", "lines", "nested"])
@pytest.mark.parametrize("arguments", [ARGS, ""])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_run_that_begins_again_without_a_head_is_the_last(run_end, steps, arguments, stamped):
    runs = [f"Job on {node} at {day} Mar\n{arguments}{steps}" for node, day in (("n1", "Mon"), ("gpu7", "Tue"))]
    first, second = (stamp(run, (4, hour)) if stamped else run for run, hour in zip(runs, (8, 15), strict=True))
    found = judge(first + run_end + second + MISSING_KEY)
    assert (found.cause, "'lr'" in found.what) == ("exception", True), found.what
    assert judge(f"{first}{run_end}{second}Training finished successfully\n").cause == NONE
    assert judge(first + run_end + second + CANCELLED).cause == "cancelled"


def test_numbers_of_steps_that_begin_again_in_each_epoch_are_no_run():
    assert judge(f"{BEGIN}{NESTED}fold 2\n{RAISED}").cause == "exception"
    hang = "".join(f"2026-03-04 {h + 10}:{m:02}:00 INFO agent waits for peers\n" for h, m in CLOCK)
    assert judge(OLD + RAISED + hang + LIMIT).cause == "exception"


# threads, and what agents catch
IN_THREAD = """Exception in thread {}:
Traceback (most recent call last):
  File "/opt/python3.8/threading.py", line 932, in _bootstrap_inner
    self.run()
  File "/opt/lib/python3.8/site-packages/{}.py", line 202, in run
    self.go()
{}
"""
THREADS = [
    ("Thread-3", "tensorboardX/event_file_writer", "EOFError"),
    ("Thread-3", "tensorboardX/record_writer", "OSError: [Errno 5] Input/output error"),
    ("Thread-5", "tensorboard/event_file_writer", "FileNotFoundError: [Errno 2] No such file or directory: b'/o/e.1'"),
    ("NetStatThr", "wandb/sdk/wandb_run", "BrokenPipeError: [Errno 32] Broken pipe"),
    ("ChkStopThr", "wandb/sdk/interface", "wandb.sdk.lib.mailbox.MailboxError: transport failed"),
    ("Thread-9", "comet_ml/streamer", "RuntimeError: cannot schedule new futures after interpreter shutdown"),
]


@pytest.mark.parametrize("thread", THREADS, ids=[name for _, name, _ in THREADS])
@pytest.mark.parametrize("end", ["Training completed in 0:41:02\n", "Finished!!!\n", "done\n", "All done!\n"])
def test_what_a_thread_raises_beside_a_good_end_is_no_failure(thread, end):
    raised = IN_THREAD.format(*thread)
    assert judge(BEGIN + STEPS + end + raised).cause == NONE
    assert judge(BEGIN + STEPS + raised + end).cause == NONE
    assert judge(BEGIN + STEPS + end + RAISED).cause == "exception"


CAUGHT = f"{TRACE}envs.EnvError: the browser is closed\n"
EPISODES = "".join(f"episode {at}: reward {at * 3 % 7}\n" + CAUGHT * (at % 5 == 2) for at in range(40))
TASKS = "".join(
    f"[agent] task {at}: start\n" + CAUGHT * (at % 5 == 2) + f"[agent] task {at}: ends\n" for at in range(13)
)


@pytest.mark.parametrize("text", [EPISODES, TASKS, STEPS + CAUGHT + "step 41: loss 2.0\nstep 42: loss 2.0\n"])
@pytest.mark.parametrize("end", ["Finished!!!\n", "done\n", "All done!\n", "Done.\n"])
def test_what_an_agent_caught_before_it_was_done_is_no_failure(text, end):
    assert judge(BEGIN + text + end).cause in (NONE, UNKNOWN)
    assert judge(BEGIN + STEPS + CAUGHT + end).cause == "exception", "the batch script says that it is done"
