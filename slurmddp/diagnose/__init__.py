"""Why a job failed: the cause, the first rank, its host, and what to type next. Reads files and asks Slurm.

The known failures are data in `rules`; a new one is a pattern in the file of its topic there.
"""
