"""Addresses: what serves an attach, and what a name resolves to."""
