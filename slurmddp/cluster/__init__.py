"""The cluster: its partitions and limits, the values that a job takes from it, and a job file to begin with."""
