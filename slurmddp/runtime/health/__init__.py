"""Looks at the nodes and the ranks of a job: briefly before each start of COMMAND, at length for `doctor --in-job`."""
