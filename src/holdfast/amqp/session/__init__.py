"""Sessions: what the user asks of one, what the peer's frames do to it, and what both are told."""
