"""Checkpoints: what they hold, how they are written and verified, and how training resumes from them."""
