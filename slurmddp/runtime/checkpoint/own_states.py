"""What only one rank has after a step, as bytes, and the exchange of it with other ranks, which outlive the rank.

A state is packed by marshal, which takes a tenth of the time of torch.save and calls no code, behind its length and a
code made with the attempt's secret (keyed BLAKE2, RFC 7693): gloo does not ask who sends. A step leaves nothing of this
in the caches, so that each further kind of call costs as much as a copy of all the bytes.
"""

from __future__ import annotations
import ctypes
import hashlib
import hmac
import io
import marshal
import mmap
import struct
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from slurmddp.runtime.checkpoint.staging import State
from slurmddp.runtime.launch.rank import Rank

_MOST_BYTES: Final = 2**19
"""For the state of one rank after one step; a larger one is not kept."""
_HEAD: Final = struct.Struct("<I32s")
"""The length of what follows, and its code."""


class OwnState(NamedTuple):
    """What only one rank has after a step."""

    attempt: str
    step: int
    rank: int
    is_early: bool
    """Whether it is that of after the forward of the step, and not of its end."""
    state: Any
    """As `TrainingState.collect_own` returns it; packed by `pack`, until it is read."""


def seal(secret: str, *states: OwnState) -> bytearray:
    """Return states as bytes that `open_states` reads; of those that are empty, nothing."""
    contents = [part for *note, packed in states if packed for part in (marshal.dumps(note), packed)]
    return bytearray().join((_HEAD.pack(sum(map(len, contents)), _code(secret, *contents)), *contents))


def _code(secret: str, *contents: bytes | bytearray) -> bytes:
    code = hashlib.blake2b(key=secret.encode(), digest_size=32)
    for content in contents:
        code.update(content)
    return code.digest()


def pack(state: State, buffers: State) -> bytes:
    """Return a state as bytes, equal ones for equal states; empty if it is too large, or marshal does not know it.

    `buffers` are from `Buffers.read`, and take the place of those of the state.
    """
    with suppress(ValueError):
        plain = {**_to_plain(state), "buffers": buffers}
        packed = marshal.dumps(plain, 2)  # from version 3 on, equal values may differ
        return packed if len(packed) < _MOST_BYTES else b""
    return b""


def is_sealed(sealed: bytes | bytearray, secret: str) -> bool:
    """Tell whether states are whole, and were sealed with the secret."""
    size, code = _HEAD.unpack_from(sealed.ljust(_HEAD.size, b"\0"))
    content = sealed[_HEAD.size :]
    return size == len(content) and hmac.compare_digest(code, _code(secret, content))


def open_states(content: bytes | bytearray) -> Iterator[OwnState]:
    """Yield the states in a file of this user's own, where sealed ones lie one behind the other."""
    file = io.BytesIO(content)
    while head := file.read(_HEAD.size):
        end = file.tell() + _HEAD.unpack(head)[0]
        while file.tell() < end:
            attempt, step, rank, is_early = marshal.load(file)  # noqa: S302 - of this user's own file
            yield OwnState(attempt, step, rank, is_early, _from_plain(marshal.load(file)))  # noqa: S302


class Buffers:
    """The buffers of modules as they lie in memory. Where they lie is looked up again when a module has other ones."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._parts = [
            (name, f"{path}." if path else "", part._buffers)  # noqa: SLF001 - of torch; its iterator takes long
            for name, module in modules.items()
            for path, part in module.named_modules(remove_duplicate=False)
        ]
        self._places: list[tuple[int, int]] = []
        """Of each tensor the id, and where its content lies."""
        self._found: dict[str, dict[str, tuple[torch.Tensor, Any]]] = {name: {} for name in modules}
        """Each buffer, and what `pack` takes."""

    def read(self, but: Container[int] = ()) -> State:
        """Return them for `pack` by module and path, valid until they change, without those whose ids are in `but`."""
        named = (buffers.values() for *_, buffers in self._parts)
        places = [(id(one), one.data_ptr()) for buffers in named for one in buffers if one is not None]
        if places != self._places:
            self._places = places if self._find() else []
        return {
            name: {path: plain for path, (buffer, plain) in found.items() if id(buffer) not in but}
            for name, found in self._found.items()
        }

    def _find(self) -> bool:
        """Return whether nothing had to be copied."""
        self._found, is_live = {name: {} for name in self._found}, True
        for name, path, buffers in self._parts:
            for key, buffer in buffers.items():
                if buffer is not None:
                    content = buffer.detach().cpu().reshape(-1).view(torch.uint8)
                    is_live = is_live and content.data_ptr() == buffer.data_ptr()
                    plain = (..., str(buffer.dtype)[6:], tuple(buffer.shape), content.numpy().data)
                    self._found[name][path + key] = buffer, plain
        return is_live


def two_ways(world_size: int) -> list[int]:
    """Return how far away two partners of each rank are: one half of all ranks, which is on another node."""
    return [way for way in dict.fromkeys((world_size // 2, 1, 2)) if way < world_size][:2]


class Partners:
    """Other ranks that keep the states of this one, as it keeps those of as many others.

    All ranks make it, and call its methods, together: for each message that one sends, it receives those of others.
    """

    def __init__(self, rank: Rank, group: dist.ProcessGroup | None, ways: Collection[int]) -> None:
        """Send to the ranks that come so many places behind this one, and receive from those before it."""
        self._to, self._sources = ([(rank.rank + sign * way) % rank.world_size for way in ways] for sign in (1, -1))
        self._group: Any = group
        self._rows = [[mmap.mmap(-1, 2 * _MOST_BYTES + 4096, mmap.MAP_PRIVATE) for _ in ways] for _ in range(3)]
        """The last three messages of each, in memory that is used as far as they reach.

        What comes must not take the place of what counts.
        """
        self._works: list[dist.Work] = []

    def send(self, sealed: bytearray) -> None:
        """Begin to send a message of this rank, and to receive those of the others."""
        self._rows.append(self._rows.pop(0))
        message, *rows = ([torch.frombuffer(content, dtype=torch.uint8)] for content in (sealed, *self._rows[-1]))
        self._works += [self._group.send(message, to, 0) for to in self._to]
        self._works += [self._group.recv(row, of, 0) for row, of in zip(rows, self._sources)]

    def receive(self) -> None:
        """Wait for what is on its way; raise torch's error for a lost rank."""
        works, self._works = self._works, []
        for work in works:
            work.wait()

    def kept(self, secret: str) -> bytes:
        """Return the states of the others that are whole and were sealed with the secret."""
        sealed = [bytes(row[: _HEAD.size + _HEAD.unpack_from(row)[0]]) for rows in self._rows for row in rows]
        return b"".join(one for one in sealed if is_sealed(one, secret))


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
