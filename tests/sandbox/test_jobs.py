def test_nodes(slurm, wait_for_job):
    job = slurm("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip()
    assert wait_for_job(job)["JobState"] == "COMPLETED"
