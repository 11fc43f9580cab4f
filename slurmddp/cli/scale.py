"""`slurmddp scale`: how many GPUs a training is worth, by measurement."""

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from slurmddp.cli.job_options import SYNOPSIS, JobCommand, given, job_options, resolve, tell
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.errors import UsageError
from slurmddp.runs.layout import write_whole
from slurmddp.scaling import formatting
from slurmddp.scaling.formatting import Study
from slurmddp.text import WIDTH

if TYPE_CHECKING:
    from slurmddp.scaling.measurements import Figures, Scaling
    from slurmddp.scaling.plot import Picture

_OWN: Final = ("nodes", "hold")
"""Options that each size has its own value of, or that no study can wait for."""
_HEIGHT: Final = 18


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options(tuple(key for key in JOB_FIELDS if key not in _OWN))
@click.option("--gpus", metavar="N,N...", help="Sizes to measure, as in 1,2,4,8.")
@click.option("--weak", "scaling", flag_value="weak", help="The batch of a rank stays. [default]")
@click.option("--strong", "scaling", flag_value="strong", help="The samples of a step stay.")
@click.option("--warm-up", type=click.IntRange(min=0), default=20, metavar="N", help="Steps left out. [default: 20]")
@click.option("--repeat", type=click.IntRange(min=1), default=1, metavar="R", help="Jobs of each size. [default: 1]")
@click.option("--together", is_flag=True, help="All jobs at once, not one after the other.")
@click.option(
    "--efficiency",
    type=click.FloatRange(min=0, min_open=True),
    default=0.8,
    metavar="SHARE",
    help="What a size must have to be advised. [default: 0.8]",
)
@click.option("--predict", metavar="N,N...", help="Sizes to predict. [default: 2 to 64 times the largest]")
@click.option("--from-csv", metavar="FILE", help="Take measured times from a file; nothing is submitted.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write the table as CSV.")
@click.option("--picture", "picture_file", metavar="FILE", help="Draw it as FILE.png and FILE.svg.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def scale(  # noqa: PLR0913 - an argument for each option
    job_file: Path | None,
    words: tuple[str, ...],
    *,
    gpus: str | None,
    scaling: "Scaling | None",
    warm_up: int,
    repeat: int,
    together: bool,
    efficiency: float,
    predict: str | None,
    from_csv: str | None,
    csv_file: str | None,
    picture_file: str | None,
    as_json: bool,
    **parameters: Any,
) -> int:
    """Measure a training on several numbers of GPUs; say how many it is worth.

    Each size is a job of its own, NAME-scale-N, that fills a node before it takes the next, and ends after --steps
    (100) of them. Typed again, the same words collect what is there and submit what is missing.
    """
    from slurmddp.cluster.request import fitted
    from slurmddp.scaling import csvfile, plan, run_study
    from slurmddp.scaling.measurements import figures

    if not math.isfinite(efficiency):
        raise UsageError(f"--efficiency {efficiency} is no share; give one above 0, as 0.8")
    more = plan.sizes(predict, "--predict") if predict else ()
    if from_csv:
        _check_alone(gpus, job_file, words, parameters)
        measured, scaling = csvfile.read(_text_of(from_csv), from_csv, scaling)
        result = _judged(Path(from_csv).stem, figures(measured, scaling), scaling, None, efficiency, more)
        return _show(result, csv_file, picture_file, as_json=as_json)
    if not gpus:
        raise UsageError("scale needs the sizes to measure, as in --gpus 1,2,4,8, or --from-csv FILE")
    scaling = scaling or "weak"
    resolved = resolve(job_file, words, parameters)
    sizes = plan.sizes(gpus, "--gpus")
    planned = plan.plan(resolved, fitted(resolved, os.environ), sizes, scaling=scaling, repeats=repeat)
    if warm_up >= (planned.jobs[0].spec.steps or plan.STEPS):
        raise UsageError(f"--warm-up {warm_up} leaves nothing of {planned.jobs[0].spec.steps} --steps")
    missing = _performed(planned, together=together)
    points, lost = run_study.points(planned, warm_up=warm_up)
    for line in lost:
        tell(line)
    if not points:
        return 1
    result = _judged(planned.name, figures(points, scaling), scaling, planned.node_size, efficiency, more)
    return _show(result, csv_file, picture_file, as_json=as_json) or int(bool(missing or lost))


def _check_alone(gpus: str | None, job_file: Path | None, words: tuple[str, ...], parameters: dict[str, Any]) -> None:
    extra = [*given(parameters), *given(parameters, WORKER_FIELDS, "worker_"), *(["gpus"] if gpus else [])]
    named = [f"--{key}" for key in extra] + [str(word) for word in (job_file, *words) if word]
    if named:
        raise UsageError(f"--from-csv takes times that were measured already; leave {named[0]} out")


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"--from-csv {path}: {why}") from error


def _performed(planned: Any, *, together: bool) -> list[Any]:
    from slurmddp.scaling import run_study

    try:
        return run_study.perform(planned, together=together, environ=os.environ, notice=tell)
    except KeyboardInterrupt:
        tell("the jobs go on without you; type the same again to collect what they measure")
        raise


def _judged(
    name: str,
    found: "tuple[Figures, ...]",
    scaling: "Scaling",
    node_size: int | None,
    least: float,
    wanted: tuple[int, ...],
) -> Study:
    from slurmddp.scaling.measurements import advised
    from slurmddp.scaling.prediction import outlook

    ahead = outlook([one.point for one in found], scaling, node_size=node_size, sizes=wanted)
    best = advised(found, least)
    return Study(name=name, scaling=scaling, found=found, ahead=ahead, least=least, advised=best)


def _show(study: Study, csv_file: str | None, picture_file: str | None, *, as_json: bool) -> int:
    from slurmddp.scaling import csvfile

    if csv_file:
        write_whole(Path(csv_file).absolute(), csvfile.text(study.found, study.scaling).encode())
        tell(f"table: {csv_file}")
    if picture_file:
        _draw(_picture(study), picture_file)
    if as_json:
        click.echo(json.dumps(formatting.as_json(study)))
        return 0
    for line in formatting.lines(study):
        click.echo(line)
    _draw_here(_picture(study))
    return 0


def _picture(study: Study) -> "Picture":
    from slurmddp.scaling.plot import Picture

    return Picture(
        title=f"{study.name}: {study.scaling} scaling",
        found=study.found,
        line=study.ahead.line,
        least=study.least,
        advised=study.advised.point.gpus if study.advised else None,
    )


def _draw(picture: "Picture", path: str) -> None:
    from slurmddp.scaling.plot import FORMATS, drawn

    stem = path.removesuffix(Path(path).suffix) if Path(path).suffix[1:] in FORMATS else path
    for kind, content in drawn(picture).items():
        write_whole(Path(f"{stem}.{kind}").absolute(), content)
        tell(f"picture: {stem}.{kind}")


def _draw_here(picture: "Picture") -> None:
    """Draw on a terminal, where the library for it is installed."""
    from slurmddp.scaling.plot import in_text

    if sys.stdout.isatty() and len(picture.found) > 1 and (text := in_text(picture, WIDTH, _HEIGHT)):
        click.echo(f"\n{text}")
