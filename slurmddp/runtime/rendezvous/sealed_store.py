"""A store in which only the processes of one attempt can write what the others read.

torch's TCPStore has no authentication: whoever reaches its port can read, write and delete every key. So the keys have
other names, and each value begins with a code, both made with the attempt's secret (HMAC, RFC 2104). What a stranger
writes is then read by nobody, or refused. A stranger can still delete or replace values: the attempt ends, and another
one can succeed. The store of the program's own process group is torch's alone.
"""

import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from torch._C._distributed_c10d import Store

from slurmddp.errors import PeerError

_CODE_BYTES: Final = 32


class SealedStore:
    """Part of a store, with the names and the codes of a secret. Errors are those of the store."""

    def __init__(self, store: Store, part: str, secret: str) -> None:
        self._store, self._part, self._secret = store, part, secret.encode()

    def set(self, key: str, value: str) -> None:
        """Set a value, which may be replaced."""
        name = self._name(key)
        self._store.set(name, self._code(name, value.encode()) + value.encode())  # type: ignore[arg-type]  # bytes, too

    def get(self, key: str) -> bytes:
        """Return a value; wait for it. Raises PeerError when another program has replaced it."""
        return self._open(self._name(key), self._store.get(self._name(key)))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return several values at once, as `get` does."""
        names = list(map(self._name, keys))
        return list(map(self._open, names, self._store.multi_get(names)))

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are set."""
        return self._store.check(list(map(self._name, keys)))

    def wait(self, keys: Sequence[str], limit: timedelta) -> None:
        """Wait until all keys are set."""
        self._store.wait(list(map(self._name, keys)), limit)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, and return it."""
        return self._store.add(self._name(key), amount)

    def _name(self, key: str) -> str:
        return self._code("name", f"{self._part}/{key}".encode()).hex()

    def _code(self, name: str, content: bytes) -> bytes:
        return hmac.digest(self._secret, f"{name}\n".encode() + content, "sha256")

    def _open(self, name: str, sealed: bytes) -> bytes:
        code, content = sealed[:_CODE_BYTES], sealed[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(name, content)):
            raise PeerError("another program has written to the store of the ranks; its value was not used")
        return content
