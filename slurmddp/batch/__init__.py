"""The supervisor: the process of the batch script, from `exec` to the job's end. Standard library only.

It starts the ranks, reads their exit records, and then restarts them, requeues the job, or ends it.
"""
