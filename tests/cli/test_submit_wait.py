"""`submit --wait` when the wait has no end to tell. Slurm is not asked here."""

import json

import pytest

from slurmddp.cli.submit import _wait
from slurmddp.errors import ClusterError
from slurmddp.monitoring import follow
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobId
from slurmddp.submission.sbatch import Submitted


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterError("squeue: no answer")])
def test_the_jobs_id_is_told_also_where_its_end_is_not(error, monkeypatch, capsys, tmp_path):
    def end(*_args, **_options):
        raise error

    monkeypatch.setattr(follow, "wait", end)
    done = Submitted(JobId("17"), RunDir(tmp_path))
    with pytest.raises(type(error)):
        _wait(done, {"job": "17"}, show=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"job": "17"}
