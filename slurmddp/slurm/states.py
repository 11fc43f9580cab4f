"""The states of a job in Slurm, and the phase of each. Data."""

from collections.abc import Mapping
from typing import Final, Literal

Phase = Literal["queued", "running", "done", "failed", "cancelled", "unknown"]

_QUEUED: Final = "PENDING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD EXPEDITING"
_RUNNING: Final = "RUNNING CONFIGURING POWER_UP_NODE COMPLETING SIGNALING STAGE_OUT STOPPED SUSPENDED RESIZING"
_FAILED: Final = "FAILED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE PREEMPTED LAUNCH_FAILED RECONFIG_FAIL"

PHASES: Final[Mapping[str, Phase]] = {
    **dict.fromkeys(_QUEUED.split(), "queued"),
    **dict.fromkeys(_RUNNING.split(), "running"),
    "COMPLETED": "done",
    **dict.fromkeys(_FAILED.split(), "failed"),
    **dict.fromkeys(("CANCELLED", "REVOKED"), "cancelled"),
}
"""Every state and flag that squeue(1) and sacct(1) show of a job, 22.05 to 25.11; any other word is `unknown`."""

OVER: Final[frozenset[Phase]] = frozenset({"done", "failed", "cancelled"})
"""The phases of a job that will not run again by itself."""


def phase_of(state: str) -> Phase:
    """Return the phase that a state belongs to."""
    return PHASES.get(state, "unknown")
