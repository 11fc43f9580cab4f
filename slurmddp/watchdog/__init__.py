"""Finds a job that hangs while it runs: ranks report what they do, the supervisor judges it. Standard library only."""
