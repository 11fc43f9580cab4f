"""Reads dumps of torch's flight recorder, which are untrusted pickles, and prints their collectives as JSON.

`python -I flight_pickles.py FILE...` prints a line for each file: `null` if it is no dump. This is a separate program
that uses the standard library alone: loading a hostile pickle can take any amount of memory and time, so this process
limits both for itself.
"""

import io
import json
import pickle
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

LARGEST_BYTES: Final = 2**25  # of a dump that is read; two thousand collectives with their stacks are some megabytes
MEMORY_BYTES: Final = 2**30
CPU_S: Final = 15
_DEFAULT_GROUP: Final = "0"
_NAME_CHARS: Final = 100
_MOST_SIZES: Final = 64  # how many tensors of a collective, and dimensions of a tensor, are printed
_LARGEST_NUMBER: Final = 2**63


class _PlainUnpickler(pickle.Unpickler):
    """Accepts numbers, strings and containers only."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed in a dump")


def main() -> None:
    """Print what each file holds, each line as soon as its file is read."""
    _lower_limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _lower_limit(resource.RLIMIT_CPU, CPU_S)
    _lower_limit(resource.RLIMIT_CORE, 0)
    for name in sys.argv[1:]:
        sys.stdout.write(f"{json.dumps(read_collectives(Path(name)))}\n")
        sys.stdout.flush()


def read_collectives(path: Path) -> list[tuple[int, str, str]] | None:
    """Return number, kind and sizes of each collective of the default group; None if the file is no dump."""
    with suppress(Exception):  # a file that is no dump, incomplete or hostile can raise any
        if path.is_file() and path.stat().st_size <= LARGEST_BYTES:
            entries = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()["entries"]
            of_group = (entry for entry in entries if entry["process_group"][0] == _DEFAULT_GROUP)
            found = []
            for entry in (entry for entry in of_group if not entry["is_p2p"]):
                kind = entry["profiling_name"][:_NAME_CHARS].rpartition(":")[2]
                tensors = entry["input_sizes"][:_MOST_SIZES]
                sizes = [[_number(size) for size in tensor[:_MOST_SIZES]] for tensor in tensors]
                found.append((_number(entry["collective_seq_id"]), kind, str(sizes)))
            return found
    return None


def _lower_limit(what: int, most: int) -> None:
    """Lower a limit of this process to `most`, unless it is lower already."""
    soft, hard = resource.getrlimit(what)
    finite = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min([most, *finite]), hard))


def _number(value: Any) -> int:
    if not isinstance(value, int) or not -_LARGEST_NUMBER <= value < _LARGEST_NUMBER:
        raise TypeError("not a number of 64 bits")
    return value


if __name__ == "__main__":
    main()
