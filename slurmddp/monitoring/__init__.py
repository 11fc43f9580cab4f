"""What is known of jobs while they run: status, logs, and the comparison of their models."""
