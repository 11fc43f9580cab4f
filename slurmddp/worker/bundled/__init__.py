"""The training that comes with slurmddp: tasks, data, models and the training loop."""
