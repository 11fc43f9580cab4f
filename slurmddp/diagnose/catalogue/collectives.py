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
        pattern=r"Watchdog caught collective operation timeout: .*?OpType=(?P<op>\w+).*?ran for (?P<ms>\d+) millisec",
        example="[E1121 23:10:11.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 "
        "milliseconds before timing out.",
        what="ranks waited {ms} ms in {op} for one that did not come: it hangs, is slow, or went another way",
        place="line",
    ),
    _collective_timeout(
        pattern=r"Received a dump signal due to a collective timeout|watchdog got stuck for \d+ seconds",
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
        key="not-finite",
        pattern=r"^[\w.]*(?:Error|Exception|Warning)\b.*"
        r"(?i:(?<![\w'\"/.-])(?:nan|not finite|non-finite|nonfinite|infinite|infinity)(?![\w'\"-])|"
        r"(?:=|is|:) *-?inf\b)",
        example="AssertionError: loss is nan at step 3",
        what="a number is not finite, and the program stopped at it",
        advice="use a lower learning rate, warmup or gradient clipping; torch.autograd.set_detect_anomaly(True) shows "
        "where it begins",
    ),
    Rule(
        key="other-checkpoint",
        pattern=r"Error\(s\) in loading state_dict for (?P<model>\w+)",
        example="RuntimeError: Error(s) in loading state_dict for Net:",
        what="the checkpoint does not match the current model {model}",
        advice="load a checkpoint of this model, or start over with --reset or another --name",
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
