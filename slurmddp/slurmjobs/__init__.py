"""The door to what Slurm knows of jobs: one squeue, one sacct, scontrol for a few; each job a row."""
