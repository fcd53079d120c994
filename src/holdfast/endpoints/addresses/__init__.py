"""Addresses: who answers an attach, and what a name resolves to."""
