"""Submits, cancels and requeues jobs, submits sweeps, and runs a job on this machine without Slurm."""
