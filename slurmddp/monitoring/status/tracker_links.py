"""Finds where experiment trackers show a run, from the lines that they print themselves. Reads rank 0's output."""

import re
from typing import Final

from slurmddp.runs.files import open_or_empty
from slurmddp.runs.layout import RunDir
from slurmddp.text import clean_line, mask_secrets

_READ_BYTES: Final = 2**18
"""From the beginning of an attempt's output; trackers print their lines when they start."""
_LINES: Final = {
    "wandb": re.compile(r"^wandb: .*View run\b.* at:? (https?://\S+)", re.MULTILINE),
    "wandb, offline": re.compile(r"^wandb: Run data is saved locally in (\S+/offline-run-)\S+(-\w+)$", re.MULTILINE),
    "MLflow": re.compile(r"^(?!wandb)\S+ View run .* at: (https?://\S+)", re.MULTILINE),
    "Comet": re.compile(r"^COMET \w+: Experiment is live on \S+ (https?://\S+)", re.MULTILINE),
}
"""What wandb 0.31, MLflow 3.17 (at a run's end) and comet_ml 3 print."""


def find_tracker_links(run: RunDir, job_id: str) -> tuple[str, ...]:
    """Return, for each tracker of the job's newest attempt with output: its name, and an address or what to type."""
    for attempt in reversed(run.attempts(job_id)):
        with open_or_empty(run.rank_log(job_id, attempt, 0)) as log:
            text = "\n".join(map(clean_line, log.read(_READ_BYTES).splitlines()))
            found = {name: line.search(text) for name, line in _LINES.items()}
            if links := tuple(f"{name}: {_target(match)}" for name, match in found.items() if match):
                return links
    return ()


def _target(found: re.Match[str]) -> str:
    """Return the address; for files of several attempts of one run, the command that uploads them."""
    if len(found.groups()) == 1:
        return str(mask_secrets(found[1]))
    return f"`wandb sync --yes {found[1]}*{found[2]}` uploads it"
