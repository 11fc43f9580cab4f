"""Slurm: the programs it is asked with, the texts they answer, and a job as it sees one.

Import the module that is needed. None of them loads more than the standard library and `slurmddp.errors`.
"""
