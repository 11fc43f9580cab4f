"""Failures of DistributedDataParallel and of collectives. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_collective_timeout = partial(
    Rule,
    key="collective-timeout",
    advice="read the missing rank's output, or run `py-spy dump` on it while it hangs",
    again=None,
    role="symptom",
    sure="likely",
)
_shape_mismatch = partial(
    Rule, key="shape-mismatch", advice="build the model from the same arguments and data on every rank"
)
_process_group = partial(Rule, key="process-group")
_autograd = partial(Rule, key="autograd")
_not_finite = partial(
    Rule,
    key="not-finite",
    advice="use a lower learning rate, warmup or gradient clipping; torch.autograd.set_detect_anomaly(True) shows "
    "where it begins",
)
_LOSS_SCALE = "float16 lost all precision: the gradients were not finite even with the smallest loss scale"

RULES: Final = (
    Rule(
        key="collective-mismatch",
        pattern=r"Detected mismatch between collectives on ranks\. Rank (?P<first>\d+) is running collective: "
        r".*?OpType=(?P<one>\w+).*?but Rank (?P<other>\d+) is running collective: .*?OpType=(?P<two>\w+)",
        example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, "
        "TensorDeviceTypes=cpu), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1, "
        "OpType=BARRIER).",
        what="ranks entered different collectives: rank {first} {one}, rank {other} {two}",
        advice="look for a collective in an `if` that depends on the rank or on its data",
    ),
    Rule(
        key="collective-mismatch",
        pattern=r"Detected mismatch between collectives on ranks\. ",
        example="RuntimeError: Detected mismatch between collectives on ranks. Collectives differ in the following "
        "aspects: Tensor Tensor shapes: 4 vs 8",
        what="ranks entered collectives that do not match",
        advice="look for a collective or a shape that depends on the rank or on its data",
        general=True,
    ),
    _collective_timeout(
        pattern=r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=1, OpType=(?P<op>\w+).*?ran for "
        r"(?P<ms>\d+) millisec",
        example="[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600081 "
        "milliseconds before timing out.",
        what="ranks waited {ms} ms in their first collective, {op}: one did not come, or NCCL cannot pass data between "
        "the GPUs",
        advice="read the output of a rank that did not wait; if all waited, export NCCL_DEBUG=INFO, and try "
        "NCCL_P2P_DISABLE=1 or another NCCL_SOCKET_IFNAME",
        place="line",
    ),
    _collective_timeout(
        pattern=r"(?:Watchdog caught collective operation timeout: |WorkNCCL\().*?OpType=(?P<op>\w+).*?ran for "
        r"(?P<ms>\d+) millisec",
        example="[E1121 23:10:11.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 "
        "milliseconds before timing out.",
        what="ranks waited {ms} ms in {op} for one that did not come: it hangs, is slow, or went another way",
        place="line",
    ),
    _collective_timeout(
        pattern=r"Watchdog caught collective operation timeout: .*?OpType=(?P<op>[A-Z_]{4,})",
        example="[E424 01:11:21.1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, Numel",
        what="ranks waited in {op} for one that did not come: it hangs, is slow, or went another way",
        place="line",
    ),
    _collective_timeout(
        pattern=r"ranks? \[(?P<missing>(?P<rank>\d+)[\d, ]*)\] (?:are the lagging ranks|"
        r"finished collective #\d+, but didn't join)|"
        r"\[(?P<absent>\d[\d, ]*)\] finished collective #\d+, but didn't join",
        example="- To our best knowledge, ranks [1] are the lagging ranks that caused this timeout. They never joined "
        "any "
        "collectives",
        what="ranks {missing}{absent} did not come to a collective in which the others waited",
        place="line",
    ),
    _collective_timeout(
        pattern=r"Watchdog caught collective operation|Stalled (?:ranks|ops):|by subset of ranks and are waiting|ran "
        r"for \d+ milliseconds before timing out|"
        r"(?:Exception|timeout\)) detected by watchdog at work|Heartbeat monitor timed out|"
        r"joined but didn't finish collective|Timeout at (?:NCCL work|collective): |Received a dump signal due to a "
        r"collective timeout|"
        r"watchdog got stuck for \d+ seconds",
        example="[rank2]:[E1121 23:10:11.123456789 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank 2] "
        "Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the info.",
        what="ranks waited in a collective for one that did not come: it hangs, is slow, or went another way",
        place="line",
    ),
    _collective_timeout(
        pattern=r"(?:Timed out waiting (?P<ms>\d+)ms for (?P<op>recv|send) operation|"
        r"[Aa]pplication timeout caused pair closure|gloo/.*Read timeout)",
        example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:119] Timed out waiting "
        "1800000ms for recv operation to complete",
        what="a rank waited in a collective for another that did not come: it hangs, is slow, or went another way",
    ),
    _collective_timeout(
        pattern=r"Ranks? (?P<missing>(?P<rank>\d+)[\d, ]*) failed to pass monitoredBarrier in (?P<ms>\d+) ms",
        example="RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 5000 ms",
        what="ranks {missing} did not come to a barrier within {ms} ms",
    ),
    _collective_timeout(
        pattern=r"successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank "
        r"(?P<rank>\d+)",
        example="RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 1. Please check rank 1 logs for faulty rank.",
        what="rank {rank} did not come to a barrier",
    ),
    Rule(
        key="unused-parameters",
        pattern=r"Expected to have finished reduction in the prior iteration",
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
        "This error indicates that your module has parameters that were not used in producing loss.",
        what="the model has parameters that took no part in the loss, and DistributedDataParallel waits for their "
        "gradients",
        advice="leave them out of the model, or wrap it with find_unused_parameters=True",
    ),
    Rule(
        key="marked-twice",
        pattern=r"Expected to mark a variable ready only once",
        example="RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the "
        "following reasons: 1) Use of a module parameter outside the `forward` function.",
        what="a parameter got two gradients in one backward: it is used outside forward, or checkpointed twice",
        advice="use torch.utils.checkpoint with use_reentrant=False, or wrap the model with static_graph=True",
    ),
    _shape_mismatch(
        pattern=r"op\.preamble\.length <= op\.nbytes\. (?P<sizes>\d+ vs \d+)|ProcessGroupGloo::\w+: invalid tensor "
        r"(?:type|size) at index",
        example="RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] "
        "op.preamble.length <= "
        "op.nbytes. 8 vs 4",
        what="ranks gave a collective tensors of different sizes or types ({sizes}), or entered different collectives",
        advice="print shape and dtype on each rank before it; look for data or code that depends on the rank, and for "
        "a rank that runs out of batches sooner",
    ),
    _shape_mismatch(
        pattern=r"\[(?P<rank>\d+)\]: params\[(?P<index>\d+)\] in this process with sizes (?P<sizes>\[[^]]*\]) "
        r"appears not to match",
        example="RuntimeError: [1]: params[0] in this process with sizes [12, 10] appears not to match sizes of the "
        "same param in process 0.",
        what="rank {rank} built another model than rank 0: its parameter {index} has the shape {sizes}",
    ),
    _shape_mismatch(
        pattern=r"DDP expects same model across all ranks, but Rank (?P<one>\d+) has (?P<ones>\d+) params, while rank "
        r"(?P<other>\d+) has inconsistent (?P<others>\d+) params",
        example="RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has "
        "inconsistent 4 params.",
        what="ranks built different models: {ones} parameters on rank {one}, {others} on rank {other}",
    ),
    Rule(
        key="graph-changed",
        pattern=r"[Yy]our training graph has changed in this iteration",
        example="RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused in "
        "first iteration, but then got used in the second iteration.",
        what="the model was wrapped with static_graph=True, and uses other parameters than in its first step",
        advice="wrap it without static_graph=True, or make every step use the same parameters",
    ),
    Rule(
        key="no-trained-parameters",
        pattern=r"DistributedDataParallel is not needed when a module doesn't have any parameter",
        example="RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameters that "
        "require a gradient.",
        what="DistributedDataParallel was given a module in which no parameter is trained",
        advice="do not wrap frozen models (a teacher, an encoder); call requires_grad_ before you wrap the others",
    ),
    _process_group(
        pattern=r"Default process group has not been initialized",
        example="ValueError: Default process group has not been initialized, please make sure to call "
        "init_process_group.",
        what="a collective was called before torch.distributed.init_process_group",
        advice="call init_process_group first, or start the program with a launcher that the framework knows",
    ),
    _process_group(
        pattern=r"trying to initialize the default process group twice",
        example="ValueError: trying to initialize the default process group twice!",
        what="init_process_group was called twice: by the script and by its framework",
        advice="call it only if not torch.distributed.is_initialized()",
    ),
    _process_group(
        pattern=r"invalid root rank: (?P<root>\d+)|new group's world size should be less or equal to the world size",
        example="RuntimeError: ProcessGroupGloo::broadcast: invalid root rank: 7",
        what="a collective or a group names a rank that does not exist: {root}",
        advice="compute ranks from dist.get_world_size(): the job may have fewer ranks than the script expects",
    ),
    Rule(
        key="device-mismatch",
        pattern=r"Expected all tensors to be on the same device, but (?:found at least two devices, "
        r")?(?P<devices>[^!]+)",
        example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
        "and cpu!",
        what="tensors of one operation are on different devices: {devices}",
        advice="move the model and each batch to cuda:LOCAL_RANK; use .to(device) and not .cuda() or a fixed cuda:0",
    ),
    Rule(
        key="device-mismatch",
        pattern=r"device_ids and output_device arguments only work with single-device.*but got device_ids "
        r"(?P<ids>\[.*?\])",
        example="ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
        "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device None, and "
        "module parameters {device(type='cpu')}.",
        what="the model is not on the GPU {ids} that DistributedDataParallel was given",
        advice="call model.to(local_rank) before you wrap it",
    ),
    _autograd(
        pattern=r"one of the variables needed for gradient computation has been modified by an inplace operation",
        example="RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.FloatTensor [2]], which is output 0 of Exp, is at version 1; expected version 0 instead.",
        what="a tensor was changed in place before backward needed it",
        advice="with DistributedDataParallel call forward once for each backward, or broadcast_buffers=False; "
        "torch.autograd.set_detect_anomaly(True) names the operation",
    ),
    _autograd(
        pattern=r"Trying to backward through the graph a second time",
        example="RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed).",
        what="backward was called twice on one graph",
        advice="detach what is kept from step to step (loss.item(), hidden.detach())",
    ),
    _autograd(
        pattern=r"element 0 of tensors does not require grad and does not have a grad_fn",
        example="RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        what="the loss depends on no parameter that is trained",
        advice="look for no_grad, detach and frozen parameters; with checkpointing use use_reentrant=False or "
        "model.enable_input_require_grads()",
    ),
    _autograd(
        pattern=r"No inf checks were recorded for this optimizer",
        example="AssertionError: No inf checks were recorded for this optimizer.",
        what="no parameter of the optimizer has a gradient: the losses were skipped (as those that are nan are), or "
        "none of its parameters was used",
        advice="look for losses of nan above; check requires_grad, and that the optimizer has the model's parameters",
    ),
    _autograd(
        pattern=r"CheckpointError: torch\.utils\.checkpoint: (?P<why>.+)",
        example="torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was "
        "saved during the original forward and recomputation.",
        what="activation checkpointing computed something else the second time: {why}",
        advice="make the forward independent of global state and of time; do not change the module between the passes",
    ),
    _not_finite(
        pattern=r"Loss is (?:nan|-?inf), stopping training",
        example="Loss is nan, stopping training",
        what="the loss is not finite, and the program stopped at it",
        place="line",
    ),
    _not_finite(
        pattern=r"Current loss scale already at minimum - cannot decrease scale anymore",
        example="Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        what=_LOSS_SCALE,
        advice="train with bfloat16, or use a lower learning rate",
    ),
    _not_finite(
        pattern=r"OVERFLOW!.* Attempted loss scale: 1(?:\.0)?, reducing to 1\b",
        example="[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1",
        what=f"{_LOSS_SCALE}; every step is skipped",
        advice="train with bfloat16, or use a lower learning rate",
        place="line",
        role="symptom",
        sure="likely",
    ),
    _not_finite(
        pattern=r"FloatingPointError: Minimum loss scale reached",
        example="FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try "
        "lowering the learning rate",
        what=_LOSS_SCALE,
        advice="train with bfloat16, or use a lower learning rate",
    ),
    _not_finite(
        pattern=r"^[\w.]*(?:Error|Exception|Warning)\b.*"
        r"(?i:(?<![\w'\"/.-])(?:nan|not finite|non-finite|nonfinite|infinite|infinity)(?![\w'\"-])|"
        r"(?:=|is|:) *-?inf\b)",
        example="AssertionError: loss is nan at step 3",
        what="a number is not finite, and the program stopped at it",
    ),
    Rule(
        key="other-checkpoint",
        pattern=r"Error\(s\) in loading state_dict for (?P<model>\w+)",
        example="RuntimeError: Error(s) in loading state_dict for Net:",
        what="the checkpoint does not match the current model {model}",
        advice="load a checkpoint of this model; if only a head differs, load it with strict=False",
    ),
    line_rule(
        key="other-checkpoint",
        pattern=r"^\s*size mismatch for\b",
        example="size mismatch for fc.weight: copying a param with shape torch.Size([10, 8]) from checkpoint, the "
        "shape in current model is torch.Size([5, 8]).",
        what="the checkpoint does not match the current model: parameters have other shapes",
        advice="load a checkpoint of this model; if only a head differs, load it with strict=False",
        sure="likely",
        general=True,
    ),
    line_rule(
        key="other-checkpoint",
        pattern=r"checkpoint (?P<folder>\S+) belongs to another run",
        example="Error: checkpoint step-000000100 belongs to another run (abc; this one is def); remove it, or start "
        "over with --reset",
        what="the checkpoint {folder} belongs to another run",
        advice="remove it, or start over with --reset",
    ),
)
