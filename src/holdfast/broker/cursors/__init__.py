"""Readers of a queue: cursors, the consumers that share one, and the entries that some of them cannot have."""
