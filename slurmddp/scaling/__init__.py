"""How many GPUs a training can use efficiently: measurements of sizes, and a law that predicts other sizes."""
