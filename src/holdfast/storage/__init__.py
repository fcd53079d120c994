"""The store: its interface and its implementations."""
