"""Measurements of the steps: their time, and the ranks that are slower than the others."""
