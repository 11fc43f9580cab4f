"""Finds a job that hangs, and shows where each rank of a job stands while it runs. Standard library only."""
