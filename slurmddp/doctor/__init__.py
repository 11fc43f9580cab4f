"""Checks of a job before it is queued, or on its nodes; each check yields findings. Imports no torch."""
