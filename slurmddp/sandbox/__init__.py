"""A real Slurm on one machine, in its own namespaces, for trials and tests."""

from slurmddp.sandbox.cluster import Sandbox, down, find, report, up
from slurmddp.sandbox.configuration import Plan, Shape
from slurmddp.sandbox.programs import check_machine
from slurmddp.sandbox.state_directory import current_name

__all__ = [
    "Plan",
    "Sandbox",
    "Shape",
    "check_machine",
    "current_name",
    "down",
    "find",
    "report",
    "up",
]
