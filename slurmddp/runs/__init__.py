"""What a run's folder holds beside its checkpoints: events, exit records, ownership. Standard library only."""
