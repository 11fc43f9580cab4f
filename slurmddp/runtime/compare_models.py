"""Compares the tensors of files that torch.save wrote: `python -m slurmddp.runtime.compare_models [--atol X] A B ...`.

Prints one JSON object; the exit status is 0 for equal files, 1 for different ones, 2 for a file that cannot be read.
Files are read with weights_only: no code in them runs. Each other file is compared with the first.
"""

import argparse
import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from slurmddp.errors import UsageError
from slurmddp.runtime.exiting.classify import one_line

Kind = Literal["parameter", "buffer", "value"]
What = Literal["missing", "extra", "kind", "shape", "dtype", "value"]

BUFFERS: Final = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of torch's batch and instance norms; only `state_dict(keep_vars=True)` marks the parameters itself."""
MAX_ENTRIES: Final = 2**20
"""Of a file."""
CHUNK: Final = 2**22
"""Elements that are compared at once, as float64."""
_WHOLE: Final = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How one tensor or plain value of one file differs from the first file."""

    file: str
    name: str
    kind: Kind
    what: What
    """missing or extra in this file; else the first of kind, shape, dtype and value that differs."""
    first: str = ""
    """In the first file: its dtype and shape, or the plain value."""
    second: str = ""
    elements: int = 0
    differing: int = 0
    """Elements that differ by more than `atol`, or are NaN in one file only."""
    largest: float = 0.0
    """The largest difference of two elements; infinite if one of them is NaN."""
    relative: float = 0.0
    """The largest difference relative to the larger of the two elements."""
    nan_first: int = 0
    nan_second: int = 0


def main(words: list[str]) -> int:
    """Compare the files that the words name; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m slurmddp.runtime.compare_models")
    parser.add_argument("--atol", type=float, default=0.0)
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args(words)
    try:
        result = compare(given.files, given.atol)
    except UsageError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - a program of its own
        return error.exit_status
    print(json.dumps(result, allow_nan=False))  # noqa: T201 - as above
    return 0 if result["same"] else 1


def compare(files: list[Path], atol: float = 0.0) -> dict[str, Any]:
    """Return what differs between the first file and each of the others, as plain JSON.

    Raises UsageError for a file that is not there or that torch does not read as plain tensors.
    """
    first = read(files[0])
    found: list[Difference] = []
    for path in files[1:]:
        found += differences(first, read(path), str(path), atol)
    return {
        "same": not found,
        "files": [str(path) for path in files],
        "atol": atol,
        "compared": dict(Counter(_kind(name, first) for name in first)),
        "differences": [{name: _plain(value) for name, value in asdict(item).items()} for item in found],
    }


def read(path: Path) -> dict[str, Any]:
    """Return the tensors and plain values of a file, by name; `module.` of a wrapped model is left out.

    Raises UsageError.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
        found = _named(content)
    except UsageError as error:
        raise UsageError(f"{path} {error}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a broken or hostile file makes torch raise what it likes
        reason = one_line(str(error)).split(". ")[0] or type(error).__name__
        raise UsageError(f"{path} is no file of plain tensors, as torch.save writes them: {reason}") from error
    if not any(isinstance(value, Tensor) for value in found.values()):
        raise UsageError(f"{path} holds no tensors; give a state_dict that torch.save wrote")
    wrapped = all(name.startswith("module.") for name in found)
    return {name.removeprefix("module.") if wrapped else name: value for name, value in found.items()}


def differences(first: Mapping[str, Any], second: Mapping[str, Any], file: str, atol: float) -> Iterator[Difference]:
    """Yield what differs in `second`, in the order of `first`; what only `second` has comes last."""
    for name, value in first.items():
        kind = _kind(name, first, second)
        if name not in second:
            yield Difference(file=file, name=name, kind=kind, what="missing", first=_described(value))
        elif difference := _difference(value, second[name], atol):
            described: dict[str, Any] = {"first": _described(value), "second": _described(second[name])}
            yield Difference(file=file, name=name, kind=kind, **described, **difference)
    for name, value in second.items():
        if name not in first:
            kind = _kind(name, second)
            yield Difference(file=file, name=name, kind=kind, what="extra", second=_described(value))


def _named(content: Any) -> dict[str, Any]:
    """Return the leaves of a content by name; raise UsageError for content that cannot be compared."""
    found: dict[str, Any] = {}
    for name, value in _leaves(content, ""):
        if name in found:
            raise UsageError(f"has two entries called {name}; rename one")
        if len(found) == MAX_ENTRIES:
            raise UsageError(f"holds more than {MAX_ENTRIES} entries")
        if isinstance(value, Tensor):
            _check_held(name, value)
        found[name] = value
    return found


def _check_held(name: str, tensor: Tensor) -> None:
    if tensor.is_meta or tensor.is_nested:
        raise UsageError(f"holds {name}, whose elements cannot be compared one by one (a meta or nested tensor)")
    held = tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else math.inf
    if tensor.numel() > CHUNK and tensor.numel() * tensor.element_size() > held:
        raise UsageError(f"holds {name}, a tensor of more elements than the file has of it")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


def _kind(name: str, *files: Mapping[str, Any]) -> Kind:
    """Return the kind by a file that marks its parameters, else by the name of the buffer and the dtype."""
    found = [file[name] for file in files if name in file]
    if not all(isinstance(value, Tensor) for value in found):
        return "value"
    if any(_knows(file) for file in files):
        return "parameter" if any(isinstance(value, nn.Parameter) for value in found) else "buffer"
    learns = found[0].is_floating_point() or found[0].is_complex()
    return "parameter" if learns and name.rpartition(".")[2] not in BUFFERS else "buffer"


def _knows(file: Mapping[str, Any]) -> bool:
    return any(isinstance(value, nn.Parameter) for value in file.values())


def _difference(first: Any, second: Any, atol: float) -> dict[str, Any] | None:
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return None if _same_value(first, second) else {"what": "value" if type(first) is type(second) else "kind"}
    if first.shape != second.shape:
        return {"what": "shape", "elements": second.numel()}
    measured = _measure(first.detach(), second.detach(), atol)
    if first.dtype != second.dtype:
        return {"what": "dtype", **measured}
    return {"what": "value", **measured} if measured["differing"] else None


def _same_value(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return type(first) is type(second) and bool(first == second)


def _measure(first: Tensor, second: Tensor, atol: float) -> dict[str, Any]:
    """Return how two tensors of the same shape differ, computed in chunks."""
    total = {"elements": first.numel(), "differing": 0, "nan_first": 0, "nan_second": 0}
    largest = relative = 0.0
    for some, other in zip(_chunks(first), _chunks(second), strict=True):
        nans = some.isnan(), other.isnan()
        same = (some == other) | (nans[0] & nans[1])
        apart = torch.where(same, 0.0, _distance(some, other).nan_to_num(nan=math.inf))
        size = torch.maximum(_double(some).abs(), _double(other).abs()).nan_to_num(nan=math.inf)
        ratio = torch.where(apart.isinf(), apart, apart / size.clamp(min=torch.finfo(torch.float64).tiny))
        total["differing"] += int((~same & (apart > atol)).sum()) if atol else int((~same).sum())
        total["nan_first"] += int(nans[0].sum())
        total["nan_second"] += int(nans[1].sum())
        largest, relative = max(largest, float(apart.max())), max(relative, float(ratio.max()))
    return {**total, "largest": largest, "relative": relative}


def _chunks(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the elements in chunks; floating-point ones as float64, which holds every smaller format exactly."""
    if tensor.is_quantized or tensor.layout is not torch.strided:
        tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    for chunk in torch.split(tensor.reshape(-1), CHUNK) if tensor.numel() else ():
        yield _double(chunk) if chunk.is_floating_point() or chunk.is_complex() else chunk


def _distance(some: Tensor, other: Tensor) -> Tensor:
    """Return the distances as float64; integers are subtracted as integers, since float64 does not hold all of them."""
    if not {some.dtype, other.dtype} <= _WHOLE:
        return (_double(some) - _double(other)).abs()
    some, other = some.to(torch.int64), other.to(torch.int64)
    apart = _double(torch.maximum(some, other) - torch.minimum(some, other))
    return torch.where(apart < 0, apart + 2.0**64, apart)  # as far apart as no int64 tells


def _double(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return one_line(f"{value!r:.60}")
    return f"{str(value.dtype).removeprefix('torch.')} {'x'.join(map(str, value.shape)) or 'scalar'}"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
