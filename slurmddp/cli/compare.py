"""`slurmddp compare`: do ranks, or runs, hold the same model."""

import json
import math
from typing import Any, Final

import click

from slurmddp.cli.job_options import runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.monitoring import compare_models as comparing
from slurmddp.text import printable, table

_HEAD: Final = ("FILE", "KIND", "NAME", "WHAT", "LARGEST", "RELATIVE", "ELEMENTS", "NAN")
_PLURALS: Final = {"parameter": "parameters", "buffer": "buffers", "value": "values"}


@click.command()
@click.argument("targets", metavar="FILE|RUN...", nargs=-1, required=True)
@click.option(
    "--atol",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="X",
    help="Elements this far apart count as the same. [default: 0]",
)
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compare(targets: tuple[str, ...], *, atol: float, runs_dir: str, as_json: bool) -> int:
    """Compare models, tensor by tensor, with the first one.

    FILE is what torch.save wrote; a RUN stands for its model.pt. One RUN alone: the models of its ranks, which the
    bundled worker leaves when told to save all ranks. Ends with 0 when all are the same, 1 when not, 2 when a file
    cannot be read.
    """
    if not math.isfinite(atol):
        raise UsageError(f"--atol {atol} is not a finite number, 0 or more")
    result = comparing.compare(comparing.files(targets, runs_dir), atol=atol)
    click.echo(json.dumps(result) if as_json else "\n".join(_lines(result)))
    return comparing.SAME if result["same"] else comparing.DIFFERENT


def _lines(result: dict[str, Any]) -> list[str]:
    first, *others = result["files"]
    lines = [f"{', '.join(others)} against {first}"]
    for kind, count in result["compared"].items():
        differing = {item["name"] for item in result["differences"] if item["kind"] == kind and item["what"] != "extra"}
        lines.append(f"{_PLURALS[kind]}: {len(differing)} of {count} differ" if differing else _all_same(kind, count))
    rows = [_row(item) for item in result["differences"]]
    return lines + (["", *table([_HEAD, *rows])] if rows else [])


def _all_same(kind: str, count: int) -> str:
    return f"{_PLURALS[kind]}: all {count} the same"


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    what, nans = item["what"], (item["nan_first"], item["nan_second"])
    if what in ("missing", "extra", "shape", "kind") or item["kind"] == "value":
        what = " ".join(filter(None, (what, " against ".join(filter(None, (item["first"], item["second"]))))))
        return (item["file"], item["kind"], printable(item["name"]), what, "", "", "", "")
    what += f" {item['first']} against {item['second']}" if what == "dtype" else ""
    sizes = (f"{float(item[name]):.3g}" for name in ("largest", "relative"))
    counts = f"{item['differing']} of {item['elements']}"
    seen = f"{nans[0]} against {nans[1]}" if any(nans) else ""
    return (item["file"], item["kind"], printable(item["name"]), what, *sizes, counts, seen)
