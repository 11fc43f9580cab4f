"""The program that each rank runs: a COMMAND of the user, or the bundled training."""
