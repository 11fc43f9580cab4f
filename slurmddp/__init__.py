"""From a training script to a multi-node PyTorch DDP job on Slurm."""

__version__ = "0.1.0"
