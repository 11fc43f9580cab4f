"""A run as one HTML page: what became of it, where its time went, how it learned."""
