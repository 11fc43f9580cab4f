"""The catalogue: each example is told by its own rule, and a healthy line by none."""

import importlib
import re
from pathlib import Path

import pytest

from slurmddp.diagnose.catalogue import RULES, TOPICS, WORDS, find_rule
from slurmddp.diagnose.evidence import observe_last_words
from slurmddp.diagnose.log_reader import LogLine
from slurmddp.diagnose.rule_types import Rule

NUMBERED = [pytest.param(rule, id=f"{rule.key}-{number}") for number, rule in enumerate(RULES)]


@pytest.mark.parametrize("rule", NUMBERED)
def test_a_rule_knows_its_example_and_fills_its_sentence_from_it(rule):
    found = rule.match(rule.example)
    assert found is not None
    assert rule.what.format(**found).strip(": ") and "{" not in rule.advice
    assert rule.advice or rule.role == "consequence"
    assert find_rule(rule.example, rule.place) == (rule, found)


def shortest_texts(parsed) -> list[str]:
    """The shortest texts that a parsed pattern matches, with `~` for what may be anything."""
    texts = [""]
    for kind, value in parsed:
        match str(kind):
            case "LITERAL":
                more = [chr(value)]
            case "BRANCH":
                more = [text for branch in value[1] for text in shortest_texts(branch)]
            case "SUBPATTERN":
                more = shortest_texts(value[-1])
            case "MAX_REPEAT" | "MIN_REPEAT":
                more = shortest_texts(value[2]) if value[0] else [""]
            case "IN":
                more = [next((chr(member) for name, member in value if str(name) == "LITERAL"), "~")]
            case "ASSERT" | "ASSERT_NOT" | "AT":
                more = [""]
            case _:
                more = ["~"]
        texts = [text + tail for text in texts for tail in more]
    return texts


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.place == "line"], ids=lambda rule: rule.key)
def test_the_words_let_every_text_of_a_rule_through(rule):
    """If this fails, add a word of the text to WORDS: a line without such a word is not looked at."""
    texts = shortest_texts(importlib.import_module("re._parser").parse(rule.pattern))
    assert [text for text in texts if not re.search(WORDS, text.lower())] == []


HEALTHY = """\
n1:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
n1:4711:4801 [0] NCCL INFO Failed to initialize NET plugin IB
n1:4711:4801 [0] NCCL INFO NET/IB : No device found.
n1:4711:4801 [0] NCCL INFO Call to connect returned Connection timed out, retrying
n1:4711:4801 [0] NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, retrying 1/20
n1:4711:4801 [0] NCCL INFO ncclCommAbort comm 0x55d9607ee240 rank 1 nranks 2 cudaDev 0 busId 61000 - Abort COMPLETE
n1:4711:4801 [0] p2p_plugin.c:141 NCCL WARN NET/IB : Got async event : client reregistration
n1:4711:4801 [0] NCCL INFO Could not find NVLS support, continuing without it
[W reducer.cpp:1300] Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any \
unused parameters in the forward pass.
W1210 18:28:00.405000 1 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each process to \
be 1 in default, to avoid your system being overloaded, please further tune the variable
[W225 15:39:25.115480139 socket.cpp:767] [c10d] The client socket cannot be initialized to connect to \
[::ffff:10.99.91.49]:5000 (errno: 97 - Address family not supported by protocol).
[W socket.cpp:401] [c10d] The server socket cannot be initialized on [::]:39025 (errno: 97 - Address family not \
supported by protocol).
[rank0]:[W928 21:09:42.729597486 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called \
before program exit, which can leak resources.
[rank0]:[W1121 23:10:11.0 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as \
devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is \
incorrect.
huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling \
parallelism to avoid deadlocks...
/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 1 \
leaked semaphore objects to clean up at shutdown
UserWarning: TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled.
FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` \
instead.
FutureWarning: You are using `torch.load` with `weights_only=False`, which uses the default pickle module implicitly.
UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current \
system is 8, which might cause the DataLoader to be slow or even freeze.
UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.
UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly.
UserWarning: None of the inputs have requires_grad=True. Gradients will be None
UserWarning: The `srun` command is available on your system but is not used. HINT: If your intention is to run \
Lightning on SLURM, prepend your python command with `srun` like so: srun python train.py
Installed CUDA version 12.2 does not match the version torch was compiled with 12.1 but since the APIs are compatible, \
accepting this combination
wandb: WARNING Path /scratch/wandb/ wasn't writable, using system temp directory.
wandb: Network error (ConnectionError), entering retry loop.
wandb: W&B API key is configured. Use `wandb login --relogin` to force relogin
Error while calling W&B API: run not found, retrying
[WARNING] async_io requires the dev libaio .so object and headers but these were not found.
[INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536
Some weights of BertModel were not initialized from the model checkpoint at bert-base-uncased and are newly initialized
Token indices sequence length is longer than the specified maximum sequence length for this model (600 > 512).
2026-11-21 23:10:00 E external/xla/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory \
for plugin cuDNN when one has already been registered
srun: job 13520767 queued and waiting for resources
srun: job 13520767 has been allocated resources
sbatch: Submitted batch job 4711
NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.
NVRM: Xid (PCI:0000:3b:00): 45, pid=4711, name=python, Ch 00000008
INFO:    Using cached SIF image
gradient overflow, skipping step, loss scale reduced to 32768
evaluation: the error rate is 0.11, no timeout, 0 failed of 512
access denied samples were skipped: 3
(raylet) Spilled 2048 MiB, 4 objects, write throughput 512 MiB/s. Set RAY_verbose_spill_logs=0 to disable this message.
UserWarning: Corrupt EXIF data.  Expecting to read 4 bytes but only got 0.
[WARN] enroot: no NVIDIA GPU requested, the hook 98-nvidia.sh was skipped
slurmstepd: pyxis: imported docker image: nvcr.io#nvidia/pytorch:24.05-py3
[n1:04711] mca_base_component_repository_open: unable to open mca_btl_openib: librdmacm.so.1: not found (ignored)
A process has executed an operation involving a call to fork(); this is usually safe
loss_nan_filter: 0 samples removed; grad_norm=0.91 loss=1.02
Killing the dataset server after 0 errors: exit status 0
n1:1:2 [0] NCCL INFO misc/socket.cc:57 -> 6 socketPollConnect: connect returned, retrying (1/34)
n1:1:2 [0] NCCL INFO transport/p2p.cc: P2P is disabled between connected GPUs 1 and 0
n1:1:2 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
n1:1:2 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
n1:1:2 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>
n1:1:2 [0] NCCL INFO comm 0x55d9 rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build
NVRM: GPU at PCI:0000:3b:00: GPU-0f1e2d3c
nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 30 RX Short Error Rate
amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!
[drm] amdgpu kernel modesetting enabled.
[launch.py:350:main] Process 4711 exits successfully.
[launch.py:256:main] process 4711 spawned with command: ['python', '-u', 'train.py', '--local_rank=0']
sbatch: error: retrying the connection to the controller
srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)
srun: launch/slurm: _task_finish: Received task exit notification for 4 tasks of StepId=17.0 (status=0x0000).
salloc: Granted job allocation 17
salloc: Relinquishing job allocation 17
salloc: Nodes n1 are ready for job
systemd[1]: oomd: swap used 3%, pressure 0.1
[Gloo] Rank 0 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3
MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: 73, provided 0
slurmstepd: pyxis: creating container filesystem ...
enroot-aufs2ovlfs: cleaning whiteouts: not needed
UCX  WARN  network device 'mlx5_0:1' is not available, please use one or more of: 'eth0'(tcp)
n1:4300:4348 [0] net_fastsocket.cc:652 NCCL WARN Cannot get incoming CPU.
n1:4300:4325 [0] net_fastsocket.cc:785 NCCL WARN Maximum retry reached for accept 3.
n1:24:24 [0] graph/search.cc:1123 NCCL WARN Could not find a path for pattern 4, falling back to simple order
n1:24:24 [0] init.cc:1 NCCL WARN NUMA auto balancing enabled which can lead to variability in the NCCL performance!
n1:24:24 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.
n1:24:24 [0] NCCL INFO cudaDriverVersion 12020
n1:24:24 [0] NCCL INFO NET/OFI Failed to initialize rdma protocol, using sendrecv
n1:24:24 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.
[W ProcessGroupGloo.cpp:684] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as \
fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())
wandb: WARNING Serializing object of type str that is 589920 bytes
wandb: ERROR Dropped streaming file chunk (see wandb/debug-internal.log)
wandb: Network error (ReadTimeout), entering retry loop.
wandb: 429 encountered (Filestream rate limit exceeded, retrying in 2.3 seconds.), retrying request
'(MaxRetryError("HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded"), '(Request ID: 4f2)')' \
thrown while requesting HEAD https://huggingface.co/gpt2/resolve/main/config.json, Retrying in 1s [Retry 1/5].
Error while fetching `HF_TOKEN` secret value from your vault: 'Requesting secret HF_TOKEN timed out. Secrets can only \
be fetched when running from the Colab UI.'.
[WARNING] [stage3.py:2148:step] 2 pytorch allocator cache flushes since last step. this happens when there is high \
memory pressure and is detrimental to performance.
[WARNING] async_io: please install the libaio-dev package with apt
/usr/bin/ld: cannot find -laio: No such file or directory
/usr/bin/ld: cannot find -lcufile
collect2: error: ld returned 1 exit status
[WARNING] using untested triton version (2.1.0), only 1.0.0 is known to be compatible
[WARNING] sparse_attn requires a torch version >= 1.5 and < 2.0 but detected 2.3
2026-11-21 23:10:00.1: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library \
'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory
2026-11-21 23:10:00.1: W tensorflow/core/kernels/data/generator_dataset_op.cc:103] Error occurred when finalizing \
GeneratorDataset iterator: Cancelled: Operation was cancelled
2026-11-21 23:10:00.1: I tensorflow/compiler/xla/stream_executor/cuda/cuda_gpu_executor.cc:995] successful NUMA node \
read from SysFS had negative value (-1), but there must be at least one NUMA node, so returning NUMA node zero"""


@pytest.mark.parametrize("line", HEALTHY.splitlines())
def test_a_line_of_a_run_that_went_well_accuses_nothing(line):
    assert find_rule(line) is None


def test_the_last_lines_of_runs_that_went_well_accuse_nothing():
    for line in HEALTHY.splitlines():
        path = Path("x")
        assert list(observe_last_words([LogLine(path, 0, "step 1"), LogLine(path, 7, line)])) == [], line


def test_what_a_program_says_while_it_cleans_up_is_no_cause():
    for line in ("OSError: [Errno 16] Device or resource busy: '.nfs00000000001c07850000000b'", "ConnectionResetError"):
        found = find_rule(line, "exception")
        assert found is not None and (found[0].role == "consequence" or found[0].general)


@pytest.mark.parametrize(
    ("number", "key"), [(13, "illegal-address"), (48, "gpu-broken"), (94, "gpu-broken"), (79, "gpu-broken"), (92, None)]
)
def test_an_xid_is_told_by_its_number(number, key):
    found = find_rule(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4711, name=python")
    assert (found[0].key if found else None) == key


@pytest.mark.parametrize("line", ["epoch 3: loss 0.2, error rate 0.11", "INFO no error", "Traceback", "", "Killed it"])
def test_an_ordinary_line_is_none(line):
    assert find_rule(line) is None


def test_options_of_a_program_that_exclude_one_another_are_no_variables_of_a_job():
    assert find_rule("train.py: error: --bf16 and --fp16 are mutually exclusive") is None


def test_an_exception_counts_only_where_one_ends_a_traceback():
    assert find_rule("FileNotFoundError: [Errno 2] No such file or directory: 'x'") is None
    rule, found = find_rule("FileNotFoundError: [Errno 2] No such file or directory: 'x'", "exception")
    assert (rule.key, found) == ("file-missing", {"path": "'x'"})


def test_a_list_of_paths_is_passed_over():
    """In a time that grows with its length, and not with its cube."""
    assert [rule for rule in RULES if rule.key == "import-error" and rule.match("/python" * 5000)] == []


def test_rules_of_one_key_agree_on_what_follows():
    """So that a key means one thing to a script: whether it is a cause, and whether trying again can help.

    Any exception has the key `exception`, and only for Python's own kinds is it known that the same comes again.
    """
    for key in {rule.key for rule in RULES}:
        alike = [rule for rule in RULES if rule.key == key]
        assert len({rule.again for rule in alike}) == 1 or key == "exception", key
        assert len({rule.role == "consequence" for rule in alike}) == 1, key


def test_every_topic_has_rules_and_keys_are_words():
    assert all(TOPICS.values())
    assert all(isinstance(rule, Rule) and re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.key) for rule in RULES)
