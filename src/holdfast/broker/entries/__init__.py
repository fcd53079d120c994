"""Entries of queues: their bytes, and the log that a queue keeps them in."""
