"""Where trackers show a run is found in what they print."""

import pytest

from slurmddp.monitoring.status.tracker_links import find_tracker_links
from slurmddp.runs.layout import RunDir

OFFLINE = """\
wandb: Tracking run with wandb version 0.31.0
wandb: Run data is saved locally in /data/wandb/offline-run-20261123_160457-abc123
"""


@pytest.mark.parametrize(
    ("printed", "links"),
    [
        ("wandb: \x1b[33mView run at\x1b[0m https://wandb.ai/a/p/runs/1\r\n", ["wandb: https://wandb.ai/a/p/runs/1"]),
        ("wandb: \N{ROCKET} View run sun-1 at: \x1b[34mhttps://w.ai/1\x1b[0m\n", ["wandb: https://w.ai/1"]),
        (OFFLINE, ["wandb, offline: `wandb sync --yes /data/wandb/offline-run-*-abc123` uploads it"]),
        (
            "\N{RUNNER} View run sly at: http://me:secret@host:5000/#/runs/2\n",
            ["MLflow: http://me:***@host:5000/#/runs/2"],
        ),
        (
            "COMET INFO: Experiment is live on comet.com https://www.comet.com/a/b/1\nwandb: View run x at: http://w/2\n",
            ["wandb: http://w/2", "Comet: https://www.comet.com/a/b/1"],
        ),
        ("View run of the mill at: noon\n", []),
    ],
)
def test_the_addresses_are_those_that_trackers_print(printed, links, tmp_path):
    run = RunDir(tmp_path)
    for attempt, text in [("0.0", "wandb: View run at https://old\n"), ("1.0", printed), ("2.0", "starting\n")]:
        log = run.rank_log("7", attempt, 0)
        log.parent.mkdir(parents=True)
        log.write_text(text)
    assert find_tracker_links(run, "7") == (tuple(links) or ("wandb: https://old",))


def test_a_job_without_output_has_none(tmp_path):
    assert find_tracker_links(RunDir(tmp_path), "7") == ()
