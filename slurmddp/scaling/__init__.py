"""How many GPUs a training can use efficiently: measurements of sizes."""
