"""What only one rank has after a step, as bytes, and the exchange of it with other ranks, which outlive the rank.

A state is packed by marshal, which takes a tenth of the time of torch.save and calls no code, behind its length and a
code made with the attempt's secret (HMAC, RFC 2104): gloo does not ask who sends.
"""

from __future__ import annotations
import ctypes
import hmac
import marshal
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from slurmddp.runtime.checkpoint.staging import State
from slurmddp.runtime.session import Session

_MOST_BYTES: Final = 2**19
"""For the state of one rank after one step; a larger one is not kept."""
_HEAD: Final = struct.Struct("<I?32s")
"""The length of what follows, whether it is promised to be that of the step's end, and its code."""


class OwnState(NamedTuple):
    """What only one rank has after a step."""

    attempt: str
    step: int
    rank: int
    is_early: bool
    """Whether it is that of after the forward of the step, and not of its end."""
    state: Any
    """As `TrainingState.collect_own` returns it; packed by `pack`, until it is read."""

    def seal(self, secret: str, *, is_promised: bool = False) -> bytes:
        """Return it as bytes that `open_states` reads; empty where there is no state."""
        content = marshal.dumps(tuple(self))
        head = _HEAD.pack(len(content), is_promised, hmac.digest(secret.encode(), content, "sha256"))
        return head + content if self.state else b""


def pack(state: State) -> bytes:
    """Return a state as bytes, equal ones for equal states; empty if it is too large, or marshal does not know it."""
    with suppress(ValueError):
        packed = marshal.dumps(_to_plain(state), 2)  # from version 3 on, equal values may differ
        return packed if len(packed) < _MOST_BYTES else b""
    return b""


def is_sealed(sealed: bytes, secret: str) -> bool:
    """Tell whether a state is whole, and was sealed with the secret."""
    size, _, code = _HEAD.unpack_from(sealed.ljust(_HEAD.size, b"\0"))
    content = sealed[_HEAD.size :]
    return 0 < size == len(content) and hmac.compare_digest(code, hmac.digest(secret.encode(), content, "sha256"))


def open_states(content: bytes) -> Iterator[OwnState]:
    """Yield the states in a file of this user's own, where they lie one behind the other."""
    while content:
        end = _HEAD.size + _HEAD.unpack_from(content)[0]
        found = OwnState(*marshal.loads(content[_HEAD.size : end]))  # noqa: S302 - of this user's own file
        yield found._replace(state=_from_plain(marshal.loads(found.state)))  # noqa: S302
        content = content[end:]


def open_row(row: bytes, secret: str) -> OwnState | None:
    """Return the state at the beginning of a row that was sent, if it is whole and was sealed with the secret."""
    sealed = row[: _HEAD.size + _HEAD.unpack_from(row)[0]]
    return next(open_states(sealed)) if is_sealed(sealed, secret) else None


class Partners:
    """Two other ranks, one of them on another node where there is one, that keep the states of this rank.

    This rank keeps those of two others. All ranks make it, and call its methods, together: in each step each rank sends
    an early state, and then that of the step's end, unless the early one is promised to be it.
    """

    def __init__(self, session: Session, size: int) -> None:
        """Agree with all ranks on the length of a message: `size` is that of this rank's packed state in bytes."""
        self._group, world_size = session.control, session.world_size
        most = torch.tensor([size, session.local_world_size], dtype=torch.int64)
        dist.all_reduce(most, dist.ReduceOp.MAX, self._group)
        longest, ranks_a_node = most.tolist()
        ways = [way for way in dict.fromkeys(way % world_size for way in (ranks_a_node, 1, 2)) if way][:2]
        self._to, self._sources = ([(session.rank + sign * way) % world_size for way in ways] for sign in (1, -1))
        room = longest + 4096  # they may grow a little
        self._sent, *self._received = (torch.zeros(room, dtype=torch.uint8) for _ in (0, *ways))
        self._works: list[dist.Work | None] = []
        self._places: list[int] = []
        """Those of the others of whom a message is on its way."""
        self._promised: set[int] = set()
        """Those of the others whose last state is promised to be that of the step's end."""

    def send(self, sealed: bytes | None) -> None:
        """Begin to send a state of this rank, unless it is None, and to receive those that are not promised."""
        self._works = []
        if sealed is not None:
            message = self._sent.numpy().data
            if not _HEAD.size <= len(sealed) <= len(message):  # the others must know of a promise all the same
                sealed = _HEAD.pack(0, bool(sealed) and _HEAD.unpack_from(sealed)[1], b"")
            message[: len(sealed)] = sealed
            self._works = [dist.isend(self._sent, to, self._group) for to in self._to]
        self._places = [place for place in range(len(self._sources)) if place not in self._promised]
        self._works += [dist.irecv(self._received[at], self._sources[at], self._group) for at in self._places]
        self._promised = set()

    def receive(self) -> dict[int, bytes]:
        """Return the states that have come by the places of the others; raise torch's error for a lost rank."""
        works, self._works = self._works, []
        for work in filter(None, works):
            work.wait()
        places, self._places = self._places, []
        messages = {place: self._received[place].numpy().data for place in places}
        heads = {place: _HEAD.unpack_from(message) for place, message in messages.items()}
        self._promised |= {place for place, (_, is_promised, _) in heads.items() if is_promised}
        return {at: bytes(message[: _HEAD.size + heads[at][0]]) for at, message in messages.items() if heads[at][0]}


def _to_plain(value: Any) -> Any:
    """Return a state with plain values in place of tensors, for marshal."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        return (..., str(value.dtype)[6:], tuple(value.shape), ctypes.string_at(value.data_ptr(), value.nbytes))
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(item, (torch.Tensor, dict, list)) for item in value):
        return type(value)(map(_to_plain, value))
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, tuple) and value[:1] == (...,):
        dtype, shape, content = value[1:]
        flat = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
        return flat.view(getattr(torch, dtype)).reshape(shape)
    if isinstance(value, dict):
        return {key: _from_plain(item) for key, item in value.items()}
    return type(value)(map(_from_plain, value)) if isinstance(value, (list, tuple)) else value
