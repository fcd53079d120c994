"""Sessions: their methods, the effect of the peer's frames, and the events."""
