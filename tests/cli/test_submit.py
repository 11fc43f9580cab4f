"""`submit --wait` when waiting fails. Slurm is not asked here."""

import json

import pytest

from slurmddp.cli.submit import _wait
from slurmddp.errors import ClusterError
from slurmddp.monitoring import follow
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobId
from slurmddp.submission.submit_once import Submitted


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterError("squeue: no answer")])
def test_the_id_is_printed_even_if_the_wait_fails(error, monkeypatch, capsys, tmp_path):
    def end(*_args, **_options):
        raise error

    monkeypatch.setattr(follow, "wait_for_job", end)
    done = Submitted(JobId("17"), RunDir(tmp_path))
    with pytest.raises(type(error)):
        _wait(done, done.run, "17", show=False, as_json=True)
    assert json.loads(capsys.readouterr().out)["job"] == "17"
