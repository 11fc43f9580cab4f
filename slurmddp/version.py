"""The version of slurmddp."""

__version__ = "0.2.0"
