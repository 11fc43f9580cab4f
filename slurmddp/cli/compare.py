"""`slurmddp compare`: compare the models of ranks or runs."""

import json
import math
from typing import Any, Final

import click

from slurmddp.cli.job_command import runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.monitoring import compare_models
from slurmddp.text import escape_text, format_table

_HEAD: Final = ("FILE", "KIND", "NAME", "WHAT", "LARGEST", "RELATIVE", "ELEMENTS", "NAN")
_PLURALS: Final = {"parameter": "parameters", "buffer": "buffers", "value": "values"}


@click.command()
@click.argument("targets", metavar="FILE|RUN...", nargs=-1, required=True)
@click.option(
    "--atol",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="X",
    help="Largest difference of elements that count as equal. [default: 0]",
)
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compare(targets: tuple[str, ...], *, atol: float, runs_dir: str, as_json: bool) -> int:
    """Compare models with the first one, tensor by tensor.

    FILE is written by torch.save; RUN means its model.pt. A single RUN means the models of its ranks, which the bundled
    worker saves with --save-all-ranks. Exit status: 0 if all models are the same, 1 if not, 2 if a file cannot be read.
    """
    if not math.isfinite(atol):
        raise UsageError(f"--atol {atol} is not a finite number, 0 or more")
    result = compare_models.compare(compare_models.find_model_files(targets, runs_dir), atol=atol)
    click.echo(json.dumps(result) if as_json else "\n".join(_format_result(result)))
    return compare_models.SAME if result["same"] else compare_models.DIFFERENT


def _format_result(result: dict[str, Any]) -> list[str]:
    first, *others = result["files"]
    lines = [f"{', '.join(others)} against {first}"]
    for kind, count in result["compared"].items():
        differing = {item["name"] for item in result["differences"] if item["kind"] == kind and item["what"] != "extra"}
        verdict = f"{len(differing)} of {count} differ" if differing else f"all {count} the same"
        lines.append(f"{_PLURALS[kind]}: {verdict}")
    rows = [_format_difference(item) for item in result["differences"]]
    return lines + (["", *format_table([_HEAD, *rows])] if rows else [])


def _format_difference(item: dict[str, Any]) -> tuple[str, ...]:
    what, nans = item["what"], (item["nan_first"], item["nan_second"])
    if what in ("missing", "extra", "shape", "kind") or item["kind"] == "value":
        what = " ".join(filter(None, (what, " against ".join(filter(None, (item["first"], item["second"]))))))
        return (item["file"], item["kind"], escape_text(item["name"]), what, "", "", "", "")
    what += f" {item['first']} against {item['second']}" if what == "dtype" else ""
    sizes = (f"{float(item[name]):.3g}" for name in ("largest", "relative"))
    counts = f"{item['differing']} of {item['elements']}"
    seen = f"{nans[0]} against {nans[1]}" if any(nans) else ""
    return (item["file"], item["kind"], escape_text(item["name"]), what, *sizes, counts, seen)
