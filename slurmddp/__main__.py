"""`python -m slurmddp`, for where the program `slurmddp` is not on PATH."""

from slurmddp.cli import main

main()
