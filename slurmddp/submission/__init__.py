"""What changes Slurm's queue: submit, cancel, requeue, sweep; and the same job run on this machine."""
