"""Logging in: SASL's frames, and its mechanisms."""
