"""`slurmddp scale`: measure how many GPUs a training can use efficiently."""

import os
from pathlib import Path
from typing import Any, Final

import click

from slurmddp.cli.job_command import JobCommand, resolve_job
from slurmddp.cli.request_options import print_reading
from slurmddp.cli.screen import print_message, print_result
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.runs.files import check_out_file, write_whole
from slurmddp.scaling.measurements import Point, Scaling, Study, compare_sizes, format_study
from slurmddp.text import quote_value

_EXCLUDED: Final = ("nodes", "hold")
"""Options without a use here: each size has its own nodes, and a study waits for its jobs."""


@click.command(
    cls=JobCommand,
    keys=tuple(key for key in JOB_FIELDS if key not in _EXCLUDED),
    epilog="--gpus 1,2,4,8 train.py --lr 0.1",
)
@click.option("--gpus", metavar="N,N...", help="Sizes to measure, as in 1,2,4,8.")
@click.option("--weak", "scaling", flag_value="weak", help="Keep the batch of a rank constant. [default]")
@click.option("--strong", "scaling", flag_value="strong", help="Keep the samples of a step constant.")
@click.option(
    "--warm-up", type=click.IntRange(min=0), default=20, metavar="N", help="Leave out the first N steps. [default: 20]"
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, metavar="R", help="Run R jobs of each size. [default: 1]"
)
@click.option("--together", is_flag=True, help="Run all jobs at once, not one after the other.")
@click.option(
    "--efficiency",
    "min_efficiency",
    type=float,
    default=0.8,
    metavar="SHARE",
    help="Efficiency that a recommended size must reach. [default: 0.8]",
)
@click.option("--picture", "picture_file", metavar="FILE", help="Plot the result as FILE.png and FILE.svg.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def scale(
    *,
    gpus: str | None,
    scaling: Scaling | None,
    warm_up: int,
    repeat: int,
    together: bool,
    min_efficiency: float,
    picture_file: str | None,
    as_json: bool,
    **parameters: Any,
) -> int:
    """Measure a training on several numbers of GPUs, and recommend one.

    Each size is a job, NAME-scale-N, that fills a node before it uses the next, and ends after --steps (100) steps. The
    same command again collects the existing measurements and submits the missing jobs.
    """
    if not 0 < min_efficiency <= 1:
        raise UsageError(f"--efficiency {min_efficiency:g} is not a share, above 0 to 1; for 80 % give 0.8")
    if picture_file:
        is_folder = picture_file.endswith("/") and Path(picture_file).is_dir()
        check_out_file(picture_file if is_folder else f"{picture_file}.png", "--picture")
    if not gpus:
        raise UsageError("give the sizes to measure, as in --gpus 1,2,4,8")
    scaling = scaling or "weak"
    resolved = resolve_job(parameters)
    if script := resolved.spec.script:
        raise UsageError(
            f"{quote_value(script.path)} is a batch script, whose size only its author can change; name the "
            "training program, as in: slurmddp scale --gpus 1,2,4,8 train.py"
        )
    print_reading(resolved, f"COMMAND alone; the sizes are --gpus {gpus}")
    points, is_complete = _measure(resolved, gpus, scaling, warm_up, repeat, together=together)
    if not points:
        return 1
    results = compare_sizes(points, scaling)
    study = Study(name=resolved.spec.job_name, scaling=scaling, results=results, min_efficiency=min_efficiency)
    _print_study(study, picture_file, as_json=as_json)
    return 0 if is_complete else 1


def _measure(
    resolved: Resolved, gpus: str, scaling: Scaling, warm_up: int, repeats: int, *, together: bool
) -> tuple[list[Point], bool]:
    """Run the jobs that are missing; return what all of them have measured, and whether none is missing."""
    from slurmddp.cluster.request import fill_from_cluster
    from slurmddp.scaling import study

    sizes, steps = study.parse_sizes(gpus), resolved.spec.steps or study.STEPS
    jobs = study.plan_study(resolved, fill_from_cluster(resolved, os.environ), sizes, scaling=scaling, repeats=repeats)
    if warm_up >= steps:
        left_out = f"--steps {steps}: the first {warm_up} are left out (--warm-up)"
        raise UsageError(f"{left_out}; give more than {warm_up}, or a smaller --warm-up")
    try:
        unmeasured = study.run_jobs(jobs, together=together, environ=os.environ, notice=print_message)
    except KeyboardInterrupt:
        print_message("the jobs go on without this command; type it again to collect their measurements")
        raise
    points, reasons = study.read_points(jobs, warm_up=warm_up)
    print_message(*reasons)
    return points, not (unmeasured or reasons)


def _print_study(study: Study, picture_file: str | None, *, as_json: bool) -> None:
    if picture_file:
        from slurmddp.scaling import plot

        suffix = Path(picture_file).suffix
        stem = picture_file.removesuffix(suffix) if suffix[1:] in plot.FORMATS else picture_file
        for kind, content in plot.draw_files(study).items():
            write_whole(Path(f"{stem}.{kind}").absolute(), content)
            print_message(f"picture: {stem}.{kind}")
    print_result(study.record, format_study(study), as_json=as_json)
