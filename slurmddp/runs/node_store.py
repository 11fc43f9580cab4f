"""Keeps what speaks against nodes, for all runs of this user: one file, `nodes.jsonl` in the user's state folder.

The job notes it on its first node, and the next submission reads it on the login node, so that the home folder must be
the same on both. A line that is damaged is left out, and a file that somebody else may have written is not read.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from slurmddp.runs.files import append_record, open_regular, parse_records, write_whole
from slurmddp.runs.node_evidence import NodeEvidence, find_suspects
from slurmddp.runs.registry import state_file
from slurmddp.trust import explain_owner

_FILE: Final = "nodes.jsonl"
_LARGE_BYTES: Final = 2**18
"""A file of this size is written again without the nodes that are forgotten."""


def read_evidence(cluster: str = "") -> list[NodeEvidence]:
    """Return what is known of the nodes of a cluster, or of all; nothing when the file cannot be read."""
    with suppress(OSError, RuntimeError), open_regular(state_file(_FILE)) as file:
        if not explain_owner(os.fstat(file.fileno())):
            found = (NodeEvidence.parse(record) for record in parse_records(file))
            return [one for one in found if one and cluster in ("", one.cluster)]
    return []


def note(evidence: Iterable[NodeEvidence], now: float) -> None:
    """Add evidence. Raises OSError, and RuntimeError for a user without a home.

    A line is appended by a single write, so that jobs which end at the same moment lose nothing of each other.
    """
    path = state_file(_FILE)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LARGE_BYTES:
        replace(one for suspect in find_suspects(read_evidence(), now) for one in suspect.evidence)
    for one in evidence:
        append_record(path, one._asdict())


def replace(evidence: Iterable[NodeEvidence]) -> None:
    """Replace all that is known. Raises OSError."""
    lines = "".join(f"{json.dumps(one._asdict())}\n" for one in evidence)
    write_whole(state_file(_FILE), lines.encode("ascii"))
