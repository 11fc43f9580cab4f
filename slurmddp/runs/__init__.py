"""Reads and writes a run's folder: layout, submissions, events, exit records, ownership. Standard library only."""
