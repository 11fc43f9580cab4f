"""Readers of data files, and the small data set that comes with slurmddp."""
