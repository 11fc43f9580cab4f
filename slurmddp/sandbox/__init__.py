"""A real Slurm on one machine, in namespaces of its own, for trying out and for tests."""

from slurmddp.sandbox.cluster import Sandbox, down, find, up
from slurmddp.sandbox.plan import Plan
from slurmddp.sandbox.programs import check
from slurmddp.sandbox.report import Report, report
from slurmddp.sandbox.shape import Shape

__all__ = ["Plan", "Report", "Sandbox", "Shape", "check", "down", "find", "report", "up"]
