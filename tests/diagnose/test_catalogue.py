"""The catalogue: each example is told by its own rule, and a healthy line by none."""

import importlib
import re

import pytest

from slurmddp.diagnose.catalogue import RULES, TOPICS, WORDS, find_rule
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
access denied samples were skipped: 3"""


@pytest.mark.parametrize("line", HEALTHY.splitlines())
def test_a_line_of_a_run_that_went_well_accuses_nothing(line):
    assert find_rule(line) is None


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
    """So that a key means one thing to a script: whether it is a cause, and whether trying again can help."""
    for key in {rule.key for rule in RULES}:
        alike = [rule for rule in RULES if rule.key == key]
        assert len({rule.again for rule in alike}) == 1, key
        assert len({rule.role == "consequence" for rule in alike}) == 1, key


def test_every_topic_has_rules_and_keys_are_words():
    assert all(TOPICS.values())
    assert all(isinstance(rule, Rule) and re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.key) for rule in RULES)
