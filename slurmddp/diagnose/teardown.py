"""What stands around a failure and is not its cause: words of launchers, trackers and children behind it, and advice.

Pure. A launcher says how a rank ended: `rank_exits` reads that from all lines.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from slurmddp.diagnose.log_reader import LogLine
from slurmddp.diagnose.rule_types import compile_regex

HEADER: Final = "Traceback (most recent call last):"
_MOST_LINES: Final = 60
"""Lines of a traceback of a launcher, or of a child whose parent has died."""
_TEARDOWN: Final = compile_regex(
    # torchrun
    r"Sending process \d+ closing signal|failed \(exitcode: -?\d+\) local_rank|"
    r"Received \d+ death signal, shutting down|"
    r"^(?:={20,}|-{20,}|\S+ FAILED|Failures:|Root Cause \(first observed failure\):|\[\d+\]:)$|<NO_OTHER_FAILURES>|"
    r"^ +(?:time|host|rank|exitcode|error_file) +: |^ +traceback +: To enable traceback see|"
    # DeepSpeed, mpirun
    r"\bKilling subprocess \d+|\bexits with return code = |^Primary job +terminated normally, but |"
    r"^a non-zero exit code\.\.? Per user-direction|^mpirun detected that one or more processes exited|"
    r"^the job to be terminated\. The first process to do so|^ +(?:Process name|Exit code): |"
    # NCCL, torch, multiprocessing, trackers
    r"NCCL INFO (?:comm 0x\S+ .* Abort COMPLETE|\[Service thread\] Connection closed)|"
    r"destroy_process_group\(\) was not called|resource_tracker\.py:\d+: UserWarning|^ +warnings\.warn\(|"
    r"^wandb:(?:$| Find logs at| You can sync| wandb sync| Synced| View | \S+ View | Waiting for|"
    r" Run (?:history|summary))"
)
_ADVICE: Final = compile_regex(
    r"(?i)^\W*(?:(?:note|hint|tip|info|faq)\b\W*)?(?:if (?:you|your|the|this|it|a|an)\b|when(?:ever)? (?:you|the)\b|"
    r"in case\b|(?:possible|common|potential|likely) (?:reason|cause|root cause)s?\b|to (?:avoid|prevent)\b)"
)
"""A sentence about what could happen."""
_STATES_FACT: Final = compile_regex(r"\b[A-Z]\w*(?:Error|Exception): |\bfailed with\b")
_LAUNCHER_FRAME: Final = re.compile(
    r"\s*File \"[^\"]*"
    r"(?:/torch/distributed/(?:run|launch|launcher/|elastic/)|/accelerate/commands/|/deepspeed/launcher/)"
)
_LAUNCHER_ERROR: Final = re.compile(r"\S*(?:ChildFailedError|CalledProcessError|SignalException)\b")
_CHILD_FRAME: Final = re.compile(r"\s*File \"(?:<string>|[^\"]*/multiprocessing/\w+\.py)\"")
_CHILD_ERROR: Final = re.compile(
    r"EOFError|\S*UnpicklingError|FileNotFoundError|BrokenPipeError|ConnectionResetError|_pickle\."
)
_FRAME: Final = re.compile(r"\s*File \"")
_IGNORED_PIPE: Final = re.compile(r"BrokenPipeError: \[Errno 32\]")


def is_teardown(text: str) -> bool:
    """Return whether a launcher, a library or a tracker prints such a line when a program has ended."""
    return _TEARDOWN.search(text) is not None


def drop_teardown(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines without those of launchers, trackers and children of dead parents, and without advice."""
    kept: list[LogLine] = []
    index = 0
    while index < len(lines):
        text = lines[index].text
        if text.endswith(HEADER) and (end := _find_teardown_end(lines, index)):
            index = end
        elif text.startswith("Exception ignored in: <_io.") and _IGNORED_PIPE.match(_text(lines, index + 1)):
            index += 2
        else:
            if not (is_teardown(text) or (_ADVICE.search(text) and not _STATES_FACT.search(text))):
                kept.append(lines[index])
            index += 1
    return kept


def _text(lines: Sequence[LogLine], index: int) -> str:
    return lines[index].text if index < len(lines) else ""


def _find_teardown_end(lines: Sequence[LogLine], head: int) -> int:
    """Return the index behind a traceback of a launcher, or of a child that its dead parent left; 0 for another one."""
    frames: list[str] = []
    for index, text in _below(lines, head):
        if _FRAME.match(text):
            frames.append(text)
        elif not text.startswith(" "):
            of_launcher = any(map(_LAUNCHER_FRAME.match, frames)) and _LAUNCHER_ERROR.match(text)
            of_child = frames and all(map(_CHILD_FRAME.match, frames)) and _CHILD_ERROR.match(text)
            return index + 1 if of_launcher or of_child else 0
    return 0


def _below(lines: Sequence[LogLine], head: int) -> Iterator[tuple[int, str]]:
    return ((index, lines[index].text) for index in range(head + 1, min(head + _MOST_LINES, len(lines))))
