"""Readers of a queue: cursors, the consumers that compete for one, and what they cannot have."""
