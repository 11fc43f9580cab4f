"""`slurmddp compare`: compare the models of ranks or runs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from slurmddp.cli.run_arguments import TEXT, find_run, runs_dir_option
from slurmddp.cli.screen import print_result
from slurmddp.config.job_files import suggest_file
from slurmddp.errors import UsageError
from slurmddp.text import format_table, quote_value

_HEAD: Final = ("FILE", "KIND", "NAME", "WHAT", "LARGEST", "ELEMENTS")


@click.command()
@click.argument("targets", type=TEXT, metavar="FILE|RUN...", nargs=-1, required=True)
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
    paths = find_model_files(targets, runs_dir)
    from slurmddp.runtime import compare_models  # it loads torch

    result = compare_models.compare(paths, atol)
    print_result(result, _format_result(result), as_json=as_json)
    return 0 if result["same"] else 1


def find_model_files(targets: Sequence[str], runs_dir: str) -> list[Path]:
    """Return the model file of each target; for a single run, the models of its ranks.

    Raises UsageError when there are not two.
    """
    for target in targets:
        if target.endswith((".pt", ".pth", ".ckpt", ".bin")) and not Path(target).exists():
            raise UsageError(f"there is no file {quote_value(target)}; {suggest_file(target)}")
    target, *others = targets
    if others:
        return [_model_file(one, runs_dir) for one in targets]
    if Path(target).is_file():
        raise UsageError(
            f"one file alone, {quote_value(target)}; give a second, or a run whose ranks are to be compared"
        )
    found = find_run(target, runs_dir).rank_models
    if len(found) < 2:  # noqa: PLR2004 - it takes two to compare
        raise UsageError(
            f"{'one rank' if found else 'no rank'} of run {quote_value(target)} has saved its model as rank-N.pt; the "
            "bundled worker does so with --save-all-ranks; for another program, give two files"
        )
    return found


def _model_file(target: str, runs_dir: str) -> Path:
    if Path(target).is_file():
        if not Path(target).stat().st_size:
            raise UsageError(f"{quote_value(target)} is empty; give a file that torch.save has written")
        return Path(target)
    path = find_run(target, runs_dir).model
    if not path.is_file():
        raise UsageError(
            f"run {quote_value(target)} has no model.pt: the bundled worker and `run.steps` write one at the end of a "
            "training; give the path of a file"
        )
    return path


def _format_result(result: dict[str, Any]) -> list[str]:
    first, *others = result["files"]
    lines = [f"{', '.join(others)} against {first}"]
    for kind, count in result["compared"].items():
        differing = {item["name"] for item in result["differences"] if item["kind"] == kind and item["what"] != "extra"}
        verdict = f"{len(differing)} of {count} differ" if differing else f"all {count} the same"
        lines.append(f"{kind}s: {verdict}")
    rows = [_format_difference(item) for item in result["differences"]]
    return lines + (["", *format_table(rows, head=_HEAD)] if rows else [])


def _format_difference(item: dict[str, Any]) -> tuple[str, ...]:
    what, numbers = item["what"], ("", "")
    is_measured = what in ("value", "dtype") and item["kind"] != "value"
    if is_measured:
        numbers = f"{float(item['largest']):.3g}", f"{item['differing']} of {item['elements']}"
    if what != "value" or not is_measured:
        what += " " + " against ".join(filter(None, (item["first"], item["second"])))
    return (item["file"], item["kind"], item["name"], what, *numbers)
