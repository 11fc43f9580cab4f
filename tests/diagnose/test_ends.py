"""How an output ends: with an earlier start above it, with what is printed at any end, by Slurm, or not at all."""

import pytest

from .test_output_files import judge

STEPS = "".join(f"step {step}: loss {3 - step / 100:.3f}\n" for step in range(40))


def trace(error: str, *frames: str) -> str:
    lines = "".join(f'  File "{frame}\n' for frame in frames)
    return f"Traceback (most recent call last):\n{lines}{error}\n"


MAIN = '/home/me/train.py", line {}, in <module>'
BROKEN = '/home/me/model.py", line 12\n    def loss(self):\n                   ^'
STORED = trace("RuntimeError: the store is closed", MAIN.format(88), '/home/me/train.py", line 60, in main')

NOT_BEGUN = {
    "import": trace("IndentationError: unexpected indent", MAIN.format(4), BROKEN),
    "runpy": trace(
        "TabError: inconsistent use of tabs", '<frozen runpy>", line 88, in _run_code', MAIN.format(4), BROKEN
    ),
    "script": trace("SyntaxError: invalid syntax", '/home/me/train.py", line 30\n    optim="adam"\n          ^'),
    "not found": "/opt/env/bin/python: can't open file '/home/me/trian.py': [Errno 2] No such file or directory\n",
    "ranks": "".join("python3: can't open file 'trian.py': [Errno 2] No such file or directory\n" for _ in range(4)),
}


@pytest.mark.parametrize("before", NOT_BEGUN)
@pytest.mark.parametrize("label", ["", "0: ", "[rank0]: "])
def test_a_start_that_was_repaired_is_not_the_last_one(before, label):
    text = NOT_BEGUN[before] + STORED
    found = judge("".join(f"{label}{line}\n" for line in text.splitlines()))
    assert "the store is closed" in found.what


@pytest.mark.parametrize(
    "behind",
    [
        trace("RuntimeError: the store is closed", '/home/me/tool.py", line 88, in <module>'),  # of another program
        trace("subprocess.CalledProcessError: Command 'python train.py' died", MAIN.format(88)),
        trace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py", MAIN.format(88)),
        "",
    ],
)
def test_a_start_that_was_not_repaired_is_the_last_one(behind):
    assert "IndentationError" in judge(NOT_BEGUN["import"] + behind).what


def test_a_child_that_could_not_be_imported_is_no_start():
    child = trace("SyntaxError: invalid syntax", '<string>", line 1, in <module>', MAIN.format(4), BROKEN)
    parent = trace("RuntimeError: a worker has ended", MAIN.format(88))
    assert "SyntaxError" in judge(child + parent).what


SUMMARY = {
    "detectron2": "[07/25 21:44:04] detectron2.engine.hooks INFO: Total training time: 0:00:15 (0:00:00 on hooks)\n",
    "a script": "Total training time: 15.2 s\n",
    "mmengine": "Training time 0:12:11\n",
}
LOST = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:575] Connection closed by peer [10.0.0.1]:32971"


@pytest.mark.parametrize("words", SUMMARY)
def test_what_a_program_prints_at_any_end_is_no_good_one(words):
    assert judge(f"{STEPS}{trace(LOST, MAIN.format(88))}{SUMMARY[words]}").what.startswith(
        "the cause is not known: a pro"
    )
    assert judge(STEPS + SUMMARY[words]).what == "it ended well"


GONE = "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/wandb/run-1/files/wandb-summary.json'"
WANDB = '/opt/env/lib/python3.9/site-packages/wandb/sdk/{}", line {}, in {}'


@pytest.mark.parametrize(
    "echo", ["Exception: The wandb backend process has shutdown", "wandb.sdk.mailbox.mailbox.MailboxClosedError"]
)
@pytest.mark.parametrize("steps", [range(40, 80), range(40, 45), ()])
def test_the_end_of_a_tracker_shows_why_its_service_had_ended(echo, steps):
    between = "".join(f"step {step}: loss {3 - step / 100:.3f}\n" for step in steps)
    service = "Thread HandlerThread:\n" + trace(GONE, WANDB.format("internal/sender.py", 833, "send_summary"))
    found = judge(f"{STEPS}{service}{between}{trace(echo, MAIN.format(88), WANDB.format('wandb_run.py', 1, 'log'))}")
    assert any("wandb-summary.json" in line.text for line in found.evidence)


LIMIT = "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-03-04T12:00:00 DUE TO TIME LIMIT ***\n"
MORE = {
    "lightning": "[rank: 0] Received SIGTERM: 15\nBypassing SIGTERM: 15\nEpoch 10:  93%|# | 18626/20000, loss=3.97\n",
    "srun": "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nepoch 3 step 7 loss 2.1\n",
    "torchrun": "".join(f"epoch {step} iter 7 loss 2.1\n" for step in range(5)),
}


@pytest.mark.parametrize("behind", MORE)
def test_a_step_that_slurm_ends_works_on_until_it_is_killed(behind):
    assert judge(STEPS + LIMIT + MORE[behind]).cause == "time-limit"


@pytest.mark.parametrize(
    "line",
    [
        "E xla/pjrt_client.cc:1981] Resource exhausted: Failed to allocate request for 32.00MiB on device ordinal 0",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 12.00G at the bottom of memory.",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.",
    ],
)
def test_the_memory_of_a_device_of_jax_is_full(line):
    assert judge(f"{STEPS}{line}\n").cause == "gpu-memory"
    assert judge(f"{STEPS}{trace(line, MAIN.format(88))}").cause == "gpu-memory"


NCCL = "n{}:4711:4712 [{}] NCCL INFO "
FULL = "n1:4711:4712 [1] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"


@pytest.mark.parametrize("label", ["", "localhost: "])
def test_the_memory_of_a_gpu_that_nccl_found_full_is_why_other_nodes_lost_their_peers(label):
    said = "".join(f"{NCCL.format(2, at % 4)}Channel {at:02}/0 : {at} -> 1\n" for at in range(300))
    remote = (
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:230, remote process exited or there was a"
    )
    lost = "".join(f"[rank{at}]: {line}\n" for at in (4, 5) for line in trace(remote, MAIN.format(9)).splitlines())
    text = f"{STEPS}{FULL}{NCCL.format(1, 1)}init.cc:602 -> 1\n{lost}{said}{lost}"
    assert judge("".join(f"{label}{line}\n" for line in text.splitlines())).cause == "gpu-memory"


@pytest.mark.parametrize(
    "error", ["  what():  CUDA error: unknown error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"]
)
def test_a_node_that_slurm_lost_is_named_beside_the_errors_of_its_gpus(error):
    text = f"{STEPS}terminate called after throwing an instance of 'c10::CUDAError'\n{error}\n"
    found = judge(f"{text}srun: error: Node failure on n49\nsrun: Job step aborted: Waiting up to 62 seconds\n")
    assert (found.cause, found.host) == ("node-lost", "n49")


TIMED_OUT = "Socket timed out on send/recv operation"


@pytest.mark.parametrize("first", [f"srun: error: slurm_receive_msgs: [[n1]:6818] failed: {TIMED_OUT}\n", ""])
def test_the_node_that_did_not_answer_is_named_and_not_those_that_were_given_up(first):
    failed = "srun: error: Task launch for StepId=96.0 failed on node"
    text = f"{first}{failed} n2: No such process\n{failed} n3: No such process\n{failed} n1: {TIMED_OUT}\n"
    found = judge(f"{text}srun: error: Application launch failed: {TIMED_OUT}\nsrun: Job step aborted\n")
    assert (found.cause, found.host) == ("launch-failed", "n1")


@pytest.mark.parametrize("steps", [STEPS, "Epoch 0:   3%|3 | 7/210 [00:09<04:11,  1.2s/it]\n"])
def test_a_run_that_was_ended_from_outside_says_so(steps):
    text = trace("RuntimeError: DataLoader worker (pid 41) is killed by signal: Terminated.", MAIN.format(88))
    assert judge(steps + text).what.startswith("the run was ended from outside (SIGTERM)")
    assert "no error is seen" not in judge(f"{steps}{trace('ValueError: no batch', MAIN.format(88))}{text}").what


NO_FAILURE = {
    "megatron": "".join(
        f" iteration      {at}/  250000 | lm loss: 2.38E+00 | number of nan iterations:   0 |\n"
        for at in range(182, 186)
    ),
    "verl": "".join(
        f"[Error] <think> appears {at % 3} times\nstep:{at} - critic/error:{at / 9:.3f} - score/max:{at}\n"
        for at in range(60)
    ),
    "horovod": "".join(
        f"n1:11007:11098 [{at}] misc/ibvwrap.cu:63 NCCL WARN Failed to open libibverbs.so[.1]\n"
        f"n1:11007:11098 [{at}] NCCL INFO Using internal Network Socket\n"
        for at in range(4)
    ),
    "torch": "[I ProcessGroupNCCL.cpp:687] [Rank 0] options:NCCL_ASYNC_ERROR_HANDLING: 1\nmerging\n1\n2\n",
    "exit": f"{STEPS}Exception ignored in atexit callback: <function save at 0x7fe5>\n"
    + trace(GONE, '/opt/env/lib/python3.9/site-packages/triton/table.py", line 9, in save'),
    "tuned": f"{STEPS}E0106 16:56:22.56 21 torch/_inductor/select_algorithm.py:2100] [7/0] No valid triton configs. "
    "OutOfResources: out of resource: shared memory, Required: 245760, Hardware limit: 232448.\nSuccess rate 18%\n",
    "git": f"{STEPS}ERROR:2025-03-02 11:56:34,332:git root error: Cmd('git') failed due to: exit code(128)\n"
    "  cmdline: git rev-parse\n  stderr: 'fatal: no repository'\nTo add an exception for this directory, call:\n",
}


@pytest.mark.parametrize("text", NO_FAILURE)
@pytest.mark.parametrize("label", ["", "0: "])
def test_where_no_line_is_an_error_no_failure_is_to_be_seen(text, label):
    found = judge("".join(f"{label}{line}\n" for line in NO_FAILURE[text].splitlines()))
    assert found.what.startswith(("no failure is to be seen", "it seems to have ended well"))


@pytest.mark.parametrize(
    "line", ["fatal: the driver went away", "ERROR: no rank has answered", "the connection was lost"]
)
def test_a_last_line_that_looks_wrong_is_not_said_to_be_none(line):
    assert not judge(f"loading\nmodel\n{line}\n").what.startswith("no failure")


USAGE = "usage: train.py [-h] [--fp16 FP16]\n                [--type {sft,rm}]\ntrain.py: error: argument "
DEEPSPEED = '/opt/env/lib/python3.8/site-packages/deepspeed/launcher/runner.py", line 407, in main'
BARRIER = (
    trace(
        "jaxlib.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: 0_write.1. This usually happens",
        MAIN.format(9),
    )
    + "# of tasks that reached the barrier: 8/16.\n/job:jax_worker/task:6\n/job:jax_worker/task:0\n\n"
)


@pytest.mark.parametrize("label", ["", "0: "])
def test_of_starts_that_refused_their_arguments_the_last_counts(label):
    text = f"{USAGE}--type: invalid choice: 'p'\n" + 2 * f"{USAGE}--fp16: got s\n"
    found = judge("".join(f"{label}{line}\n" for line in text.splitlines()))
    assert (found.cause, "--fp16: got s" in found.what) == ("wrong-arguments", True), found.what


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_message_of_an_exception_that_ranks_print_one_after_the_other_is_no_new_start(ranks):
    steps = "".join(f"completed step: {at}, seconds: 64.{at}\n" for at in range(9))
    found = judge(steps + BARRIER * ranks)
    assert (found.cause, "0_write.1" in found.what) == ("rank-missing", True), found.what


@pytest.mark.parametrize("asked", ["received SIGUSR1, re-queueing", "asks for its requeue"])
def test_a_job_that_was_requeued_and_runs_again_has_not_failed(asked):
    start = "Mon Nov  5 10:30:59 PST 2018: Job 3118 starting on n6\n" + "Mon Nov  5 10:31:59 PST 2018: at work\n" * 3
    end = f"Job 3118 {asked}\nslurmstepd: error: *** JOB 3118 ON n6 CANCELLED AT 2018-11-05 DUE TO JOB REQUEUE ***\n"
    assert judge(start + end + start).what.startswith("no failure is to be seen")
    assert judge(start + end).cause == "requeued"


@pytest.mark.parametrize("word", ["Segmentation fault", "Illegal instruction"])
def test_the_rank_that_its_launcher_names_is_that_of_the_signal_that_the_process_told_of(word):
    signal = f"[n9:194] *** Process received signal ***\n[n9:194] Signal: {word} (11)\n"
    number = {"Segmentation fault": 11, "Illegal instruction": 4}[word]
    found = judge(
        f"{signal}mpiexec noticed that process rank 3 with PID 194 on node n9 exited on signal {number} ({word}).\n"
    )
    assert (found.rank, found.host) == (3, "n9"), found.what


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("can't find package turbine 1.2.3\n    while executing\n", "import-error"),
        ("Can't locate JSON/XS.pm in @INC (you may need to install it)\n", "import-error"),
        ("Error in library(ranger) : there is no package called 'ranger'\n", "import-error"),
        ("ERROR: LoadError: ArgumentError: Package Flux not found in current path.\n", "import-error"),
        (
            trace("NotImplementedError: Unsloth cannot find any torch accelerator? You need a GPU.", MAIN.format(9)),
            "no-gpu",
        ),
        (trace("RuntimeError: could not detect any CUDA devices", MAIN.format(9)), "no-gpu"),
        (
            trace("RuntimeError: Using hostfile at /h but host=n7 was not reachable via ssh. If you", DEEPSPEED),
            "remote-start",
        ),
    ],
)
def test_what_the_environment_lacks(text, cause):
    assert judge(text).cause == cause


def test_an_exit_status_alone_is_a_failure_of_unknown_cause():
    assert (
        judge("[launch.py:320:sigkill_handler] ['/opt/python', 't.py'] exits with return code = 1\n").cause == "unknown"
    )


BTLS = (
    "srun: error: Unable to create step for job 106: More processors requested than permitted\n"
    "At least one pair of MPI processes are unable to reach each other for\nMPI communications.\n"
    "  Process 1 ([[11151,1],1]) is on host: n4\n  BTLs attempted: self\n"
    "[n4:96117] *** An error occurred in MPI_Comm_dup\n"
)
LOADER = trace("AssertionError: Caught AssertionError in DataLoader worker process 0.", MAIN.format(9)) + trace(
    "AssertionError: the shared memory is gone", '/home/me/data.py", line 247, in __iter__'
).replace("Traceback", "Original Traceback")
CONDA = (
    "/opt/conda/bin/conda: line 3: import: command not found\n"
    "/opt/conda/bin/conda: line 6: syntax error near unexpected token `x'\n"
)
OF_MEMORY = (
    "slurmstepd-n4: error: *** JOB 17 ON n4 CANCELLED AT 2023-06-29T15:21:53 ***\n"
    "slurmstepd-n4: error: Detected 30 oom-kill event(s) in StepId=17.batch. Some of your processes may have "
    "been killed by the cgroup out-of-memory handler.\n"
)
LOGGING = (
    "--- Logging error ---\n"
    + trace(
        "TypeError: not all arguments converted during string formatting",
        '/opt/lib/python3.6/logging/__init__.py", line 9',
    )
    + "Call stack:\n  File \"train.py\", line 335, in <module>\n    main()\nMessage: 'Total :'\nArguments: (5.2,)\n"
)
LSF_WELL = (
    "------------------------------------------------------------\nSender: LSF System <lsfadmin@n4>\n"
    "Terminated at Wed Apr  9 08:25:14 2025\n# LSBATCH: User input\n./train.sh\n\nSuccessfully completed.\n\n"
    "Resource usage summary:\n\n    CPU time :         21.08 sec.\n    Max Memory :       88 MB\n"
    "    Average Memory :   71.00 MB\n    Total Requested Memory : 4000.00 MB\n    Delta Memory :   3912.00 MB\n"
    "    Max Swap :         -\n    Max Processes :    4\n    Max Threads :      25\n    Run time :  13 sec.\n"
    "    Turnaround time :  15 sec.\n\nThe output (if any) is above this job summary.\n\nPS:\n\n"
    "Read file <output.err> for stderr output of this job.\n"
)


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (BTLS, "mpi-failed", "it tried self"),
        (LOADER, "exception", "the shared memory is gone"),
        (
            CONDA + trace("ModuleNotFoundError: No module named 'numpy._core'", MAIN.format(9)),
            "import-error",
            "NumPy 2",
        ),
        (STEPS + LOGGING * 2, "none", "no failure"),
        (LSF_WELL, "none", "ended well"),
        (OF_MEMORY, "out-of-memory", ""),
        (trace("httpx.ConnectError: [Errno 111] Connection refused", MAIN.format(9)), "service-unreachable", "refused"),
        (trace("urllib.error.HTTPError: HTTP Error 403: Forbidden", MAIN.format(9)), "download-failed", "403"),
        ("Attempting to use an MPI routine before initializing MPICH\n", "mpi-failed", "MPI_Init"),
    ],
)
@pytest.mark.parametrize("label", ["", "0: "])
def test_the_root_and_not_what_stands_beside_it(text, cause, words, label):
    found = judge("".join(f"{label}{line}\n" if line else "\n" for line in text.splitlines()))
    assert (found.cause, words in found.what) == (cause, True), found.what


def test_a_rank_that_was_terminated_with_the_others_is_not_the_first_that_failed():
    rich = (
        "╭───── Traceback (most recent call last) ─────╮\n│ /home/me/train.py:12 in main │\n╰─────────────────────╯\n"
    )
    raised = f"{rich}FileNotFoundError: Unable to find \n'/data/camoscio.json'\nWaiting up to 30 seconds\n"
    ends = "".join(
        f"srun: error: n{at}: task {at}: Exited with exit code {1 if at == 7 else 143}\n" for at in (3, 6, 7, 5)
    )
    found = judge(raised + ends + raised)
    assert (found.cause, found.rank, found.host) == ("file-missing", 7, "n7")
    assert "/data/camoscio.json" in found.what


def test_another_exception_at_the_end_is_told_and_makes_the_first_a_likely_cause():
    """Two starts in one file, or two processes of one: their order alone does not say which."""
    first, last = trace("ValueError: no padding token", MAIN.format(24)), trace("KeyError: 'rise-3'", MAIN.format(25))
    found = judge(first * 3 + last)
    assert (found.sure, found.others) == ("likely", "at the end: the program raised KeyError: 'rise-3'")
    assert judge(first * 3).sure == "certain"


CONDOR = (
    "006 (119224.000.000) 2022-03-07 20:43:34 Image size of job updated: 8243\n\t26703  -  MemoryUsage of job (MB)\n"
    "...\n005 (119224.000.000) 2022-03-07 20:48:36 Job terminated.\n\t(1) Normal termination (return value {})\n"
    "\t\tUsr 0 04:02:18, Sys 0 01:01:01  -  Run Remote Usage\n\t606  -  Run Bytes Received By Job\n"
    "\tPartitionable Resources :    Usage  Request\n\t   Gpus (Average)       :     0.59        1\n"
    "\t   Memory (MB)          : 26703       51200\n\n\tJob terminated of its own accord at 2022-03-07T11:48Z.\n...\n"
)
GIT = (
    "Error: connect ENOENT /tmp/vscode-git-d585d619c9.sock\nremote: Repository not found.\n"
    "fatal: Authentication failed for 'https://github.com/me/it.git/'\nConverting the notebook\nWriting 128 bytes\n"
)
VLLM = (
    "ERROR 12-28 17:10:15 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 3437883 died, exit code: -15\n"
    "INFO 12-28 17:10:15 multiproc_worker_utils.py:120] Killing local vLLM worker processes\n"
)
OFI = (
    "Abort(1614479) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Unknown error class, error stack:\n"
    "MPID_Init(1561)..............:\n"
    "create_vni_context(2221).....: OFI endpoint open failed (ofi_init.c:2221:create_vni_context:Invalid argument)\n"
)
NO_DEVICE = "cuda_driver.cc:274] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
DEACTIVATE = "conda: error: argument COMMAND: invalid choice: 'deactivate' (choose from 'clean', 'run')\n"
SKIPPED = "[skip] Failed to load symnco_tsp50.ckpt: the file is of another model\n"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (CONDOR.format(0), "none", "ended well"),
        (CONDOR.format(1), "unknown", ""),
        (GIT, "none", ""),
        (STEPS + VLLM, "none", "no failure"),
        (NO_DEVICE + "the probe has passed\nA: PASS\n", "none", "no failure"),
        (STEPS + SKIPPED + "Saved the results to out.csv\n", "none", ""),
        (
            DEACTIVATE + trace("FileNotFoundError: [Errno 2] No such file or directory: 'x'", MAIN.format(9)),
            "file-missing",
            "",
        ),
        (OFI, "mpi-failed", "OFI endpoint open failed"),
        (OFI[: OFI.index("create")], "mpi-failed", "MPI_Init"),
        (f"{STEPS}run.sh: line 32: 4067342 Terminated              python train.py\n", "rank-terminated", "SIGTERM"),
        ("node_manager.cc:170: This node has beem marked as dead.\n", "ray-node-dead", ""),
        ("/bin/bash: ./job.sh: Permission denied\n\nExited with exit code 126.\n", "not-executable", "./job.sh"),
        ("  (0) Not found:  train/1.jpg; No such file or directory\n", "file-missing", "train/1.jpg"),
        ("ibv_create_cq(cqe=4096) failed: Cannot allocate memory\n", "locked-memory", ""),
    ],
)
def test_what_batch_systems_shells_and_libraries_say_at_an_end(text, cause, words):
    found = judge(text)
    assert (found.cause, words in found.what) == (cause, True), found.what


INSTALLED = '/opt/env/lib/python3.12/site-packages/swift/cli/sft.py", line 10, in <module>'
DEEP = [f'/opt/env/lib/python3.12/site-packages/transformers/layer.py", line {at}, in forward' for at in range(150)]
ELASTIC = (
    "W0425 03:27:35.264000 137 torch/distributed/elastic/api.py:1010] Sending process 137094 closing signal SIGTERM\n"
)


@pytest.mark.parametrize("frames", [[], DEEP])
@pytest.mark.parametrize("label", ["", "[rank1]: "])
def test_a_program_that_is_installed_as_a_package_is_no_import_of_a_library(frames, label):
    """Its traceback begins below site-packages, too, and the launcher speaks after it."""
    lines = trace("RuntimeError: max(): Expected reduction dim", INSTALLED, *frames).splitlines()
    found = judge(STEPS + "".join(f"{label}{line}\n" for line in lines) + ELASTIC)
    assert "max(): Expected reduction dim" in found.what, found.what


def test_a_count_of_no_failures_and_a_benchmark_of_nccl_are_good_ends():
    assert judge(f"{STEPS}failed_trials: 0\nexported the best parameters\n").cause == "none"
    nccl = "slurm_script: line 11: module: command not found\n# nThread 1 nGpus 1\n# Out of bounds values : 0 OK\n"
    assert judge(f"{nccl}# Avg bus bandwidth    : 3.84811\n").what == "it ended well"


SCARY = {
    "a script's line": "/var/spool/slurm_script: line 11: module: command not found\n",
    "a refused connection": "n1:12:34 [0] include/socket.h:403 NCCL WARN Connect to 10.0.0.1<42> failed : Refused\n",
    "a retry": "WARNING: Retrying after NewConnectionError: [Errno 101] Network is unreachable: /simple/x\n",
    "a full disk of others": "cp: error writing '/tmp/a': No space left on device\n",
    "a library": "Could not load library libcudnn_cnn.so.8. Error: libnvrtc.so: cannot open shared object file\n",
    "slurmstepd": "slurmstepd: error: Unable to create TMPDIR [/scratch/1]: Permission denied\n",
    "cgroups": "slurmstepd: error: xcgroup_load: no cgroup\nslurmstepd: error: _file_read_content: no file\n",
    "a caught exception": "WARNING: the sample is left out\n"
    + trace("OSError: [Errno 5] Input/output error", MAIN.format(9)),
}
NOT_DESTROYED = (
    "[W324 13:49:30.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we "
    "destruct ProcessGroupNCCL. On normal program exit, the application should call destroy_process_group\n"
)
ORDINARY = "".join(f"{word} is ready\n" for word in ("data", "model", "loader", "optimizer", "schedule", "sampler"))
MORE_STEPS = STEPS.replace("step ", "batch ")


@pytest.mark.parametrize("line", SCARY)
@pytest.mark.parametrize("label", ["", "0: "])
@pytest.mark.parametrize("end", ["Training completed successfully\n", "Test accuracy: 0.93\n", "", NOT_DESTROYED])
def test_a_good_or_a_calm_end_below_progress_beats_an_error_before_it(line, label, end):
    before, after = ORDINARY, "".join(MORE_STEPS.splitlines(keepends=True)[: 40 if end in ("", NOT_DESTROYED) else 20])
    found = judge("".join(f"{label}{line}\n" for line in f"{before}{SCARY[line]}{after}{end}".splitlines()))
    assert found.cause == "none", found.what


@pytest.mark.parametrize("end", ["job is done\n", "The work is over\nTraining completed successfully\n"])
def test_words_of_a_script_right_below_a_failure_are_no_good_end(end):
    assert judge(f"{ORDINARY}cp: error writing 'a': No space left on device\n{end}").cause == "disk-full"
    assert judge(f"{ORDINARY}{trace('ValueError: no batch', MAIN.format(9))}{end}").cause == "exception"


QUOTA = trace("OSError: [Errno 122] Disk quota exceeded: 'a.h5'", MAIN.format(9)) + (
    "/home/me/run.sh: line 4: 22 Segmentation fault      python index.py\n"
    "srun: error: n1: task 0: Exited with exit code 139\n"
)
STORE = (
    "RuntimeError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store "
    "by key '0', but store->get('0') got error: Socket Timeout"
)
OTHERS = "".join(f"srun: error: n{at}: task {at}: Exited with exit code 143\n" for at in range(3))
BARRIERS = trace("yaml.constructor.ConstructorError: while constructing a mapping", MAIN.format(9)) + "".join(
    trace(
        f"RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key: b:1 "
        "(world_size=4, worker_count=2, timeout=0:30:00)",
        MAIN.format(12),
    )
    for rank in (0, 2)
)
NO_NAME = (
    "'(MaxRetryError('HTTPSConnectionPool(host=hub.org, port=443): Max retries exceeded with url: /m (Caused by "
    "NameResolutionError(Failed to resolve hub.org ([Errno -2])\nRetrying in 1s [Retry 1/5].\n"
)
CANCELLED = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-03-12T14:38:09 ***\n"
OPAL = (
    "It looks like opal_init failed for some reason; your parallel process is\n  opal_shmem_base_select failed\n"
    "*** An error occurred in MPI_Init\n*** on a NULL communicator\n"
    "[n4:1336] Local abort before MPI_INIT completed completed successfully, but am not able to aggregate errors\n"
)


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (STEPS + QUOTA, "disk-full", "quota"),
        (STEPS + trace(STORE, MAIN.format(9)) + OTHERS, "rank-missing", "rank 0 did not come"),
        (BARRIERS, "exception", "ConstructorError"),
        (NO_NAME * 4 + CANCELLED, "download-failed", "hub.org"),
        (OPAL * 2, "mpi-failed", "opal_shmem_base_select"),
        (f"{STEPS}2025/10/31 18:23:50 INFO connection: ManageConnectionData: connection closed id=1(@)\n", "none", ""),
    ],
)
def test_what_an_end_follows_from(text, cause, words):
    found = judge(text)
    assert (found.cause, words in found.what) == (cause, True), found.what


def test_an_exit_status_alone_is_no_certain_cause():
    found = judge("srun: error: n1: task 1: Exited with exit code 1\n")
    assert (found.cause, found.sure) == ("exit-status", "likely")


@pytest.mark.parametrize("words", ["One job did not complete successfully.", "It completed successfully, but not well"])
def test_a_success_that_is_denied_is_no_good_end(words):
    assert judge(f"{STEPS}{words}\n").what != "it ended well"
