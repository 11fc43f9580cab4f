"""Lines that always follow from another failure, and are never the cause. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import line_rule

_repeatable_consequence = partial(line_rule, role="consequence", again=True)
_consequence = partial(line_rule, role="consequence")

RULES: Final = (
    _repeatable_consequence(
        key="peer-lost",
        pattern=r"(?i:connection (?:reset|closed|refused)(?: by peer)?)|[Bb]roken pipe|ConnectionAbortedError|"
        r"(?i:failed to recv, got 0 bytes)|recvValue failed|"
        r"sendBytes failed|Connection was likely closed|(?i:remote process exited)",
        example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
        "[127.0.0.1]:41003",
        what="lost its peer",
    ),
    _consequence(
        key="destructor",
        pattern=r"AssertionError: can only (?:test|join) a child process",
        example="AssertionError: can only test a child process",
        what="a data loader was cleaned up in another process than its own, which changes nothing",
        place="exception",
    ),
    _repeatable_consequence(
        key="aborted",
        pattern=r"(?i:nccl communicator was aborted)|Horovod has been shut down|ncclRemoteError|Some NCCL operations "
        r"have failed or timed out|"
        r"To avoid data inconsistency, we are taking the entire process down",
        example="torch.distributed.DistBackendError: NCCL communicator was aborted on rank 2.",
        what="was aborted by NCCL",
    ),
    _consequence(
        key="step-ended",
        pattern=r"Job step aborted|"
        r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ (?:DUE (?:to SIGNAL \w+|TO TASK FAILURE) )?\*\*\*|"
        r"Terminating StepId|ended with status \d+; stopping the others|"
        r"(?:sending|Sending process \d+ closing) (?:signal )?SIGTERM",
        example="srun: Job step aborted: Waiting up to 7 seconds for job step to finish.",
        what="was ended with the others",
    ),
    _consequence(
        key="told-to-stop",
        pattern=r"(?:told to stop|stop signal received)(?: \(SIG\w+\)|, and ended by itself)|"
        r"lost ranks? \d.*: no answer within|"
        r"SignalException: Process \d+ got signal: 15",
        example="76 rank 0 on n1: lost rank 1: no answer within 3 s (SIGTERM)",
        what="received a stop signal",
    ),
    _consequence(
        key="ended-by-signal",
        pattern=r"tasks? (?P<tasks>[\d,-]+): (?:Killed|Terminated|Aborted|Exited with exit code (?P<status>\d+))|"
        r"^(?:Killed|Terminated)$|HYD\w+ .*assert \(!closed\) failed|control_cb .*assert \(!closed\)|Signal \d+ "
        r"\(SIG(?:TERM|KILL)\) received",
        example="srun: error: n1: task 0: Killed",
        what="was ended",
    ),
    _consequence(
        key="child-failed",
        pattern=r"ChildFailedError|Primary job +terminated normally, but|CalledProcessError: Command "
        r"\W{0,3}[^',]*python|ProcessRaisedException|"
        r"torchrun: rank \d+ \(pid \d+\) (?:was killed by|ended with)",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        what="torchrun reports that a rank failed",
    ),
)
