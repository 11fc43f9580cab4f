"""`slurmddp --host`: the same commands on another machine, by OpenSSH, rsync and the slurmddp there."""
