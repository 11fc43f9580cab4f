"""What the ranks and the batch script of a job have printed: found, read, put in order. Asks nobody.

Files are closed between two reads, so that thousands of ranks need one descriptor.
"""
