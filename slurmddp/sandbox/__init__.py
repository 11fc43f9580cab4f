"""A real Slurm on one machine, in namespaces of its own, for trying out and for tests."""

from slurmddp.sandbox.cluster import Sandbox, down, find, up
from slurmddp.sandbox.configuration import Plan
from slurmddp.sandbox.partition_shape import Shape
from slurmddp.sandbox.programs import check
from slurmddp.sandbox.status import Report, report

__all__ = ["Plan", "Report", "Sandbox", "Shape", "check", "down", "find", "report", "up"]
