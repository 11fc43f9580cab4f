"""A real Slurm on one machine, in its own namespaces, for trials and tests."""

from slurmddp.sandbox.cluster import Sandbox, down, find, up
from slurmddp.sandbox.configuration import Plan
from slurmddp.sandbox.partition_shape import Shape
from slurmddp.sandbox.programs import check_machine
from slurmddp.sandbox.state_directory import current_name, names_up
from slurmddp.sandbox.status import Report, report

__all__ = [
    "Plan",
    "Report",
    "Sandbox",
    "Shape",
    "check_machine",
    "current_name",
    "down",
    "find",
    "names_up",
    "report",
    "up",
]
