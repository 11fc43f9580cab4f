"""What can be known about a job before it is queued: each check yields findings. Reads only; no torch."""
