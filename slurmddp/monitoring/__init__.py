"""Shows jobs: their status, their logs, and the comparison of their models."""
