"""Slurm: its programs, their output, and jobs as Slurm shows them. The modules use the standard library only."""
