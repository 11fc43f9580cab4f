"""Many settings of one job as one array: what they are, which of them are missing, what came out of them."""
