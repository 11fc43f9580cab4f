"""Measure all benchmarks, or the named ones, and write docs/benchmarks.json, .md and .svg.

    python benchmarks/run.py [PART...]

A part that fails keeps its rows of before; the others are measured.
"""

import importlib
import sys
import traceback

import results
from page import page
from picture import draw
from programs import ROOT
from rows import print_rows

PARTS = (
    "startup",
    "submit",
    "first_step",
    "memory",
    "loop",
    "watching",
    "beats",
    "survivors",
    "epoch",
    "save",
    "faults",
    "hangs",
    "long_queue",
    "diagnose_log",
)
"""The modules that have rows, in the order of the page."""


def measure(name: str) -> bool:
    """Measure a part and write its rows; tell whether that succeeded."""
    print(f"== {name}", flush=True)
    try:
        rows = importlib.import_module(name).rows()
    except Exception:  # noqa: BLE001 the other parts are still to be measured
        traceback.print_exc()
        return False
    print_rows(rows)
    write({**results.read(), name: results.measured_now(rows)})
    return True


def write(parts: dict[str, results.Part]) -> None:
    """Write the data, the page and the picture, in the order of PARTS."""
    ordered = {name: parts[name] for name in PARTS if name in parts}
    results.write(ordered)
    (ROOT / "docs" / "benchmarks.md").write_text(page(ordered))
    (ROOT / "docs" / "benchmarks.svg").write_bytes(draw(ordered))


def main(chosen: list[str]) -> int:
    """Return 1 when a part has failed."""
    unknown = sorted({*chosen} - {*PARTS})
    if unknown:
        sys.exit(f"{' '.join(unknown)}: there are {' '.join(PARTS)}")
    failed = [name for name in chosen or PARTS if not measure(name)]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
