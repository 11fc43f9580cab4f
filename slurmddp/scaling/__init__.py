"""How many GPUs a training is worth: measured sizes, what they amount to, and a law that predicts others."""
