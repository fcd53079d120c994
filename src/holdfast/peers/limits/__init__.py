"""Limits of what one peer may use: memory, work, requests, connections."""
