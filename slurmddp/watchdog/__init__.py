"""Looks into a job while it runs: where each rank stands, and what runs beside it. Standard library only."""
