"""Readers of the data sets' file formats, and the small data set that comes with slurmddp."""
