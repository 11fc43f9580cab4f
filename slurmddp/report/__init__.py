"""A run as one HTML page: how it ended, how its time was spent, and its curves."""
