"""Slurm's programs get nothing that speaks of another job."""

from slurmddp.slurm.environment import submission_environment


def test_a_submission_inherits_nothing_of_another_job():
    environ = {
        "SLURM_CONF": "c", "SLURM_JOB_ID": "1", "SLURM_CPU_BIND": "x", "SBATCH_PARTITION": "p", "RANK": "0",
        "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "PMI_RANK": "0", "PMIX_ID": "x", "PATH": "/bin",
        "TORCHELASTIC_RUN_ID": "x", "MY_RANK": "kept", "SLURMDDP_NODES": "2",
    }  # fmt: skip
    assert submission_environment(environ) == {
        "SLURM_CONF": "c", "PATH": "/bin", "MY_RANK": "kept", "SLURMDDP_NODES": "2",
    }  # fmt: skip
