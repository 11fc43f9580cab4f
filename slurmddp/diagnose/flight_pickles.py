"""Reads dumps of torch's flight recorder, pickles that anybody may have written, and prints what they hold as JSON.

`python -I dumps.py FILE...`: a line for each file, `null` for one that is no dump. A program of its own, with the
standard library alone, since a pickle can ask for any memory and time before it is seen to be wrong: this process may
not take them.
"""

import io
import json
import pickle
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

LARGEST_BYTES: Final = 2**25
"""Of a dump that is read; two thousand collectives with their lines of program are some megabytes."""
MEMORY_BYTES: Final = 2**30
CPU_S: Final = 15
_DEFAULT: Final = "0"
_NAME_CHARS: Final = 100
_MOST_SIZES: Final = 64
"""Of the tensors in one collective, and of the dimensions of one, that are told."""
_LARGEST_NUMBER: Final = 2**63
_BROKEN: Final = (
    OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError,
    pickle.UnpicklingError,
)  # fmt: skip
"""What a file that is no dump, or a torn or hostile one, leads to."""


class _Plain(pickle.Unpickler):
    """Takes numbers, texts and containers only."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} has no place in a dump")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"{pid!a} has no place in a dump")


def main() -> None:
    """Print what each file holds, a line as soon as it is read."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, CPU_S)
    _limit(resource.RLIMIT_CORE, 0)
    for name in sys.argv[1:]:
        sys.stdout.write(f"{json.dumps(held(Path(name)))}\n")
        sys.stdout.flush()


def held(path: Path) -> list[tuple[int, str, str]] | None:
    """Return the number, the kind and the sizes of each collective of all ranks; None for a file that is no dump."""
    with suppress(*_BROKEN):
        if path.is_file() and path.stat().st_size <= LARGEST_BYTES:
            entries = _Plain(io.BytesIO(path.read_bytes())).load()["entries"]
            return [_entry(entry) for entry in entries if _counts(entry)]
    return None


def _limit(what: int, most: int) -> None:
    """Lower a limit of this process, as far as it is not lower yet."""
    soft, hard = resource.getrlimit(what)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min([most, *known]), hard))


def _counts(entry: Mapping[str, Any]) -> bool:
    return bool(entry["process_group"][0] == _DEFAULT and not entry["is_p2p"])


def _entry(entry: Mapping[str, Any]) -> tuple[int, str, str]:
    kind = _text(entry["profiling_name"])[:_NAME_CHARS].rpartition(":")[2]
    sizes = [[_number(size) for size in tensor[:_MOST_SIZES]] for tensor in entry["input_sizes"][:_MOST_SIZES]]
    return _number(entry["collective_seq_id"]), kind, str(sizes)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or not -_LARGEST_NUMBER <= value < _LARGEST_NUMBER:
        raise TypeError("no number of a dump")
    return value


if __name__ == "__main__":
    main()
