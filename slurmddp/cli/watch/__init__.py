"""The live screen of `slurmddp watch`."""
