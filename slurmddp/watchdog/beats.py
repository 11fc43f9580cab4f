"""The datagram of a beat: its values as JSON, behind a code made with the attempt's secret (HMAC, RFC 2104)."""

from __future__ import annotations
import hmac
import json
from typing import Final

from slurmddp.watchdog.policy import Beat

MOST_BYTES: Final = 4096
"""A beat has less."""
_CODE_BYTES: Final = 32
_SHAPE: Final = Beat(0, 0, "", "", 0, 0.0, 0.0, 0.0)


def seal(beat: Beat, secret: str) -> bytes:
    """Return the datagram of a beat."""
    content = json.dumps(beat, separators=(",", ":")).encode("ascii")
    return _code(secret, content) + content


def open_beat(datagram: bytes, secret: str) -> Beat | None:
    """Return the beat of a datagram; None for one that no process of this attempt has sent."""
    code, content = datagram[:_CODE_BYTES], datagram[_CODE_BYTES:]
    if not hmac.compare_digest(code, _code(secret, content)):
        return None
    values = json.loads(content)
    fits = len(values) == len(_SHAPE) and all(type(one) is type(ours) for one, ours in zip(values, _SHAPE))
    return Beat(*values) if fits else None  # it may be of another version of slurmddp


def _code(secret: str, content: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"beat\n" + content, "sha256")
