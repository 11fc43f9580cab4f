"""Compares the tensors of files that torch.save wrote. Files are read with weights_only: no code in them runs."""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor

from slurmddp.errors import UsageError
from slurmddp.runtime.exiting.classify import one_line
from slurmddp.text import escape_text

Kind = Literal["parameter", "buffer", "value"]
Model = Mapping[str, Any]
"""The tensors and plain values of a file, by name."""

BUFFERS: Final = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of torch's batch and instance norms: a state_dict does not say what is a buffer."""
MAX_ENTRIES: Final = 2**20
"""Of a file."""
CHUNK: Final = 2**22
"""Elements that are compared at once, in 64 bits."""
_NO_NUMBERS: Final[Mapping[str, float]] = {"elements": 0, "differing": 0, "largest": 0.0}


def compare(files: Sequence[Path], atol: float = 0.0) -> dict[str, Any]:
    """Return what differs between the first file and each of the others, as plain JSON.

    Raises UsageError for a file that is not there or that torch does not read as plain tensors.
    """
    first = read(files[0])
    differences = [found for path in files[1:] for found in _differences(first, read(path), str(path), atol)]
    return {
        "same": not differences,
        "files": [str(path) for path in files],
        "atol": atol,
        "compared": dict(Counter(_kind(*entry) for entry in first.items())),
        "differences": differences,
    }


def read(path: Path) -> Model:
    """Return the tensors and plain values of a file, by name; `module.` of a wrapped model is left out.

    Raises UsageError.
    """
    name = escape_text(str(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
        found = _named(content)
    except UsageError as error:
        raise UsageError(f"{name} {error}") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a broken or hostile file makes torch raise what it likes
        reason = one_line(str(error)).split(". ")[0] or type(error).__name__
        raise UsageError(f"{name} is no file of plain tensors, as torch.save writes them: {reason}") from error
    if not any(isinstance(value, Tensor) for value in found.values()):
        raise UsageError(f"{name} holds no tensors; give a state_dict that torch.save wrote")
    wrapped = all(key.startswith("module.") for key in found)
    return {key.removeprefix("module.") if wrapped else key: value for key, value in found.items()}


def _named(content: Any) -> Model:
    """Return the leaves of a content by name; raise UsageError for content that cannot be compared."""
    found: dict[str, Any] = {}
    for name, value in _leaves(content, ""):
        if name in found:
            raise UsageError(f"has two entries called {one_line(name)}; rename one")
        if len(found) == MAX_ENTRIES:
            raise UsageError(f"holds more than {MAX_ENTRIES} entries")
        found[name] = value
        if not isinstance(value, Tensor):
            continue
        if value.is_meta or value.is_nested:
            why = "whose elements cannot be compared one by one (a meta or nested tensor)"
            raise UsageError(f"holds {one_line(name)}, {why}")
        held = value.untyped_storage().nbytes() if value.layout is torch.strided else math.inf
        if value.numel() > CHUNK and value.numel() * value.element_size() > held:
            raise UsageError(f"holds {one_line(name)}, a tensor of more elements than the file has of it")
    return found


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, (Mapping, list, tuple)):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves(item, f"{path}.{key}" if path else str(key))


def _differences(first: Model, second: Model, file: str, atol: float) -> Iterator[dict[str, Any]]:
    """Yield what differs in `second`, in the order of `first`; what only `second` has comes last."""
    for name in {**first, **second}:
        if name not in first or name not in second:
            what, numbers = "missing" if name in first else "extra", _NO_NUMBERS
        else:
            what, numbers = _compare_values(first[name], second[name], atol)
        if what:
            yield {
                "file": file,
                "name": name,
                "kind": _kind(name, first.get(name, second.get(name))),
                "what": what,
                "first": _describe(first[name]) if name in first else "",
                "second": _describe(second[name]) if name in second else "",
                **{key: value if math.isfinite(value) else str(value) for key, value in numbers.items()},
            }


def _kind(name: str, value: Any) -> Kind:
    """Return the kind of an entry; that of a tensor by its name and dtype."""
    if not isinstance(value, Tensor):
        return "value"
    learns = value.is_floating_point() or value.is_complex()
    return "parameter" if learns and name.rpartition(".")[2] not in BUFFERS else "buffer"


def _compare_values(first: Any, second: Any, atol: float) -> tuple[str, Mapping[str, float]]:
    """Return the first of kind, shape, dtype and value that differs, empty if none does; and the numbers about it."""
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        both_nan = isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)
        same = both_nan or (type(first) is type(second) and bool(first == second))
        return "" if same else "value" if type(first) is type(second) else "kind", _NO_NUMBERS
    if first.shape != second.shape:
        return "shape", {**_NO_NUMBERS, "elements": second.numel()}
    measured = _measure(first.detach(), second.detach(), atol)
    if first.dtype != second.dtype:
        return "dtype", measured
    return "value" if measured["differing"] else "", measured


def _measure(first: Tensor, second: Tensor, atol: float) -> dict[str, float]:
    """Return how two tensors of the same shape differ.

    `differing` counts the elements that differ by more than `atol`, or are NaN in one tensor only. `largest` is the
    largest difference, infinite if one of two elements is NaN.
    """
    found = {**_NO_NUMBERS, "elements": first.numel()}
    for some, other in zip(_chunks(first), _chunks(second)):
        same = (some == other) | (some.isnan() & other.isnan())
        apart = torch.where(same, 0.0, (some - other).abs().double().nan_to_num(nan=math.inf))
        found["differing"] += int((~same & (apart > atol)).sum() if atol else (~same).sum())
        found["largest"] = max(found["largest"], float(apart.max()))
    return found


def _chunks(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the elements in chunks of the widest dtype of their kind, which holds every narrower one exactly."""
    plain = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    exact = torch.float64 if plain.is_floating_point() else torch.int64
    for chunk in torch.split(plain.reshape(-1), CHUNK) if plain.numel() else ():
        yield chunk.to(torch.complex128 if plain.is_complex() else exact)


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return one_line(f"{value!r:.60}")
    return f"{str(value.dtype).removeprefix('torch.')} {'x'.join(map(str, value.shape)) or 'scalar'}"
