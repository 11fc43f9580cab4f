"""Finds, reads and merges the output of a job's ranks and batch script. Slurm is not asked.

Files are closed between two reads, so that thousands of ranks need one descriptor.
"""
