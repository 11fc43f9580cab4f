"""`slurmddp` alone: the cluster, your newest runs, which of them failed last, and what to type next."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.run_arguments import default_runs_dir
from slurmddp.cli.screen import screen_width
from slurmddp.cli.status import current_tasks, explain_none, newest_first
from slurmddp.cli.status_format import format_jobs
from slurmddp.cluster.inspect import query_cluster
from slurmddp.errors import ClusterError
from slurmddp.monitoring.status import JobStatus, query_targets
from slurmddp.runs.lookup import settings
from slurmddp.text import escape_text
from slurmddp.version import __version__

_MOST_RUNS: Final = 10
_TIMEOUT_S: Final = 5.0
_NEXT: Final = {"failed": "diagnose", "running": "watch", "done": "report"}
"""The command for a run in this phase; for another phase it is `status`."""


def print_overview() -> None:
    """Print where the user is; the states are those of `slurmddp status`."""
    environ, has_cluster = dict(os.environ), True
    try:
        cluster = query_cluster(environ, timeout_s=_TIMEOUT_S)
        where = f"cluster {escape_text(cluster.name)}, Slurm {escape_text(cluster.version)}"
    except ClusterError as error:
        where, has_cluster = str(error), False
        environ["PATH"] = ""  # Slurm is not asked again: the runs' files tell the states
    runs_dir = default_runs_dir()
    targets = newest_first(runs_dir)
    parts = [part for target in targets[:_MOST_RUNS] for part in settings(target) if part.jobs]
    shown = [item for group in query_targets(parts, environ) for item in current_tasks(group)]
    table = format_jobs(shown, width=screen_width()) if shown else [explain_none(runs_dir)]
    older = ["older runs: slurmddp status"] if len(targets) > _MOST_RUNS else []
    parting = [*_advise(shown, has_cluster=has_cluster), "all commands: slurmddp --help"]
    click.echo("\n".join([f"slurmddp {__version__}; {where}", "", *table, *older, "", *parting]))


def _advise(shown: Sequence[JobStatus], *, has_cluster: bool) -> Iterator[str]:
    """Yield what to type for the run that failed last, and for the newest one or the first one."""
    failed = next((item for item in shown if item.phase == "failed"), None)
    if failed and failed is not shown[0]:
        yield f"failed last: {_name(failed)}; type: slurmddp diagnose {_name(failed)}"
    programs = sorted(Path().glob("*.py"), key=lambda path: not re.search("train|tune|main", path.name))
    file = next((str(path) for path in (Path("job.toml"), Path("train.py"), *programs) if path.is_file()), "")
    typed = shlex.quote(file) if file else "--example steps"
    if shown:
        yield f"next: slurmddp {_NEXT.get(shown[0].phase, 'status')} {_name(shown[0])}"
    elif not has_cluster:
        yield f"next: slurmddp {'run' if file else 'init'} {typed}"
    else:
        yield f"next: slurmddp {'submit' if file == 'job.toml' else 'init'} {typed}"


def _name(item: JobStatus) -> str:
    """Return what a person types for a job: the run, or the task of a sweep."""
    return shlex.quote(item.job_id if item.run is None or item.run.sweep else item.name)
