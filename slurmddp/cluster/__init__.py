"""The cluster: its partitions and limits, and the values that a job takes from it."""
